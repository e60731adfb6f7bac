"""`export`: the records of runs for wandb, or as one table."""

import argparse
from pathlib import Path

import pandas as pd

from analysis.commands import writing
from analysis.read.find import read_logs
from analysis.wandb_export import TrackedRun, send, tracked
from configs.disk import replacing
from configs.errors import Unreadable
from configs.terminal import csv_cell

EXAMPLE = "ditbench export logs/layouts-1120 --to wandb"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the form, the project of wandb, and the file."""
    parser.add_argument("--to", required=True, choices=("csv", "parquet", "wandb"))
    parser.add_argument("--project", default="ditbench", help="of wandb (default: ditbench)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the table of csv or parquet")


def run(args: argparse.Namespace) -> int:
    """Send what wandb lacks, or write the table."""
    if (args.to == "wandb") == bool(args.out):
        raise Unreadable(f"--to {args.to} {'takes no' if args.out else 'needs'} --out")
    runs = [tracked(log) for log in read_logs(args.paths)]
    if len({one.name for one in runs}) < len(runs):
        raise Unreadable("two of these runs have the same name: export them into two projects")
    try:
        if args.to == "wandb":
            for one in runs:
                print(f"{one.name}: {send(one, args.project)} new steps", flush=True)
        else:
            print(f"{args.out}: {_write(runs, args)} rows")
    except ImportError:
        package = "pyarrow" if args.to == "parquet" else args.to
        raise Unreadable(f"--to {args.to} needs a package; first: pip install {package}") from None
    return 0


def _write(runs: list[TrackedRun], args: argparse.Namespace) -> int:
    """Write a row per step of each run, and return their number."""
    rows = [{"run": one.name} | dict(row) for one in runs for row in one.rows.values()]
    if args.to == "csv":
        rows = [{csv_cell(name): csv_cell(value) for name, value in row.items()} for row in rows]
    table = pd.DataFrame(rows)
    with writing(args.out), replacing(args.out) as file:
        table.to_csv(file, index=False) if args.to == "csv" else table.to_parquet(file)
    return len(table)
