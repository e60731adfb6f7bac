"""`cost`: what runs cost."""

import argparse
from pathlib import Path

from analysis.table import csv_table, put, remark, text_table

DOC = "GPU-hours, money and energy of runs, and the front of time against cost"
EXAMPLE = "python -m analysis cost logs --rates rates.yaml    (rates.yaml: `A100: 1.80` a line)"


def options(sub: argparse.ArgumentParser) -> None:
    """The rates."""
    sub.add_argument("--rates", type=Path, metavar="FILE", help="YAML: money per hour of each GPU")


def act(asked: argparse.Namespace) -> int:
    """Print the bills."""
    from analysis.measure.cost import cost_row, costs, hours_row, read_rates
    from analysis.read.find import read_logs

    rates = read_rates(asked.rates) if asked.rates else {}
    found = costs(read_logs(asked.paths), rates)
    rows = [cost_row(one) for one in found]
    ledger = [row for one in found if (row := hours_row(one.log))]
    put(rows, asked, json={"runs": rows, "hours": ledger})
    if ledger and not asked.json:
        title = "where the hours went (queue and hold are beside what was allocated)"
        print(f"\n{csv_table(ledger)}" if asked.csv else f"\n{title}\n{text_table(ledger)}")
    remark(
        f"{one.log.name}: no rate for {one.gpu or 'an unknown GPU'}"
        for one in found
        if rates and one.money is None
    )
    return 0
