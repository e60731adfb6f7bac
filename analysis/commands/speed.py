"""`speed`: rates, and their ratios to the first run's."""

import argparse
from collections.abc import Iterator

from analysis.gpus.load import explained, steady_load
from analysis.measure.clocks import CLOCKS
from analysis.measure.rate import measure_rates
from analysis.measure.speed import Arm, group_arms
from analysis.measure.speed_table import difference_rows, speed_rows, time_rows
from analysis.observations import attributed
from analysis.read.find import read_logs
from analysis.table import put, remark
from configs.table import text_table
from configs.terminal import printable

EXAMPLE = "ditbench speed logs/one-rank logs/two-ranks --clock train"
MOST_LISTED = 4
# The columns to leave out first of a table that is too wide.
DROP = ("counts", "MFU", "clock", "images_per_s")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the clock."""
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        help="; ".join(f"{name}: {meaning}" for name, meaning in CLOCKS.items())
        + " (default: the first of these that every run has)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison."""
    measured = measure_rates(read_logs(args.paths), clock=args.clock)
    runs = [Arm(runs=(run,)) for run in measured]
    loads = [steady_load(run) for run in measured]
    rows = speed_rows(runs)
    found = [row | load.fields() for row, load in zip(rows, loads, strict=True)]
    is_text = not (args.json or args.csv)
    put(rows if is_text else found, args, drop=DROP)
    if is_text:
        print("".join(f"\n{part}\n" for part in _below(runs, whole=args.all)), end="")
    remark(
        line
        for run, load in zip(measured, loads, strict=True)
        for line in (*run.remarks, *explained(run, load))
    )
    if len(runs) > len(group_arms(measured)) > 1:
        remark(["some of these differ only in their seed: cells pools them as repeats"])
    return 0


def _below(compared: list[Arm], *, whole: bool) -> Iterator[str]:
    """Yield the time by purpose, and what else differs, as text."""
    base = compared[0]
    if spent := time_rows(compared):
        yield "time by purpose, in seconds\n" + text_table(spent, whole=whole)
    for arm in compared[1:]:
        cause = attributed(base.logs, arm.logs, of="clock")
        head = printable(f"{arm.name} against {base.name}: {cause}")
        differing = difference_rows(base, arm)
        listed = differing and len(compared) <= MOST_LISTED
        yield head + ("\n" + text_table(differing, whole=whole) if listed else "")
