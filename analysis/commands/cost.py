"""`cost`: GPU-hours, money and energy of runs."""

import argparse
from pathlib import Path

from analysis.measure.cost import cost_row, costs, hours_row, read_rates
from analysis.read.find import read_logs
from analysis.table import csv_table, put, remark, text_table

EXAMPLE = "python -m analysis cost logs --rates rates.yaml    (rates.yaml: `A100: 1.80` a line)"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the file of rates."""
    parser.add_argument(
        "--rates", type=Path, metavar="FILE", help="YAML: money per hour of each GPU"
    )


def run(args: argparse.Namespace) -> int:
    """Print a row per run, then the ledger of hours."""
    rates = read_rates(args.rates) if args.rates else {}
    found = costs(read_logs(args.paths), rates)
    rows = [cost_row(one) for one in found]
    ledger = [row for one in found if (row := hours_row(one.log))]
    put(rows, args, json={"runs": rows, "hours": ledger})
    if ledger and not args.json:
        title = "hours by purpose (queue and hold are not part of the allocated hours)"
        print(f"\n{csv_table(ledger)}" if args.csv else f"\n{title}\n{text_table(ledger)}")
    remark(
        f"{one.log.name}: no rate for {one.gpu or 'an unknown GPU'}"
        for one in found
        if rates and one.money is None
    )
    return 0
