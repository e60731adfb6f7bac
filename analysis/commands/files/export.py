"""`export`: the records of runs for wandb, or as one table."""

import argparse
import time
from pathlib import Path

import pandas as pd

from analysis.commands import writing
from analysis.read.find import read_logs
from analysis.wandb_export import is_unfinished, send, tracked
from configs.disk import replacing
from configs.errors import Unreadable
from configs.terminal import csv_cell

EXAMPLE = "ditbench export logs/layouts-1120 --to wandb --follow"
INTERVAL_S = 30.0


def options(parser: argparse.ArgumentParser) -> None:
    """Add the form, the project of wandb, and following."""
    parser.add_argument("--to", required=True, choices=("csv", "parquet", "wandb"))
    parser.add_argument("--project", default="ditbench", help="of wandb (default: ditbench)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the table of csv or parquet")
    parser.add_argument("--follow", action="store_true", help="go on until all runs have ended")


def run(args: argparse.Namespace) -> int:
    """Send what is new, or write the table; with `--follow` until all runs have ended."""
    if (args.to == "wandb") == bool(args.out):
        raise Unreadable(f"--to {args.to} {'takes no' if args.out else 'needs'} --out")
    while True:
        logs = read_logs(args.paths)
        runs = [tracked(log) for log in logs]
        if len({one.name for one in runs}) < len(runs):
            raise Unreadable("two of these runs have the same name: export them into two projects")
        try:
            if args.to == "wandb":
                sent = [(one.name, send(one, args.project)) for one in runs]
                print("\n".join(f"{name}: {count} new steps" for name, count in sent), flush=True)
            else:
                rows = [{"run": r.name} | dict(o) for r in runs for o in r.rows.values()]
                if args.to == "csv":
                    rows = [{csv_cell(k): csv_cell(v) for k, v in row.items()} for row in rows]
                table = pd.DataFrame(rows)
                with writing(args.out), replacing(args.out) as file:
                    table.to_csv(file, index=False) if args.to == "csv" else table.to_parquet(file)
                print(f"{args.out}: {len(table)} rows", flush=True)
        except ImportError:
            package = "pyarrow" if args.to == "parquet" else args.to
            raise Unreadable(
                f"--to {args.to} needs a package; first: pip install {package}"
            ) from None
        if not args.follow or not any(map(is_unfinished, logs)):
            return 0
        time.sleep(INTERVAL_S)
