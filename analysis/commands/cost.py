"""`cost`: GPU-hours, money and energy of runs."""

import argparse
from pathlib import Path

from analysis.measure.cost import cost_rows, hours_row
from analysis.read.find import read_logs
from analysis.table import put, put_more, remark
from configs.gpus import read_rates

EXAMPLE = "ditbench cost logs --rates rates.yaml    (rates.yaml: `A100: 1.80` a line)"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the file of rates."""
    parser.add_argument(
        "--rates", type=Path, metavar="FILE", help="YAML: money per hour of each GPU"
    )


def run(args: argparse.Namespace) -> int:
    """Print a row per run, then the ledger of hours."""
    rates = read_rates(args.rates) if args.rates else {}
    logs = read_logs(args.paths)
    rows = cost_rows(logs, rates)
    ledger = [row for log in logs if (row := hours_row(log))]
    put(rows, args, json={"runs": rows, "hours": ledger})
    title = "hours by purpose (queue and hold are not part of the allocated hours)"
    put_more(ledger, args, title=title)
    remark(
        f"{row['run']}: no rate for {row['gpu'] or 'an unknown GPU'}"
        for row in rows
        if rates and row["money"] is None
    )
    return 0
