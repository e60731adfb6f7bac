"""`speed`: rates, and their ratios to the first run's."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.gpus.load import explained, steady_load
from analysis.measure.arms import Arm, group_arms, rate_fields
from analysis.measure.clocks import CLOCKS
from analysis.measure.differences import difference_rows
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, speed_contrasts
from analysis.measure.time_breakdown import time_rows
from analysis.observations import attributed
from analysis.read.find import read_logs
from analysis.table import put, remark
from analysis.verdict import against_first
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
    names = [run.log.name for run in measured]
    verdicts = against_first(speed_contrasts(runs), SPEED, names=names)
    rows = [_row(*pair) for pair in zip(runs, verdicts, strict=True)]
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


def _row(run: Arm, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run; absent values are None."""
    (measured,) = run.runs
    row = {"run": run.name, "clock": measured.clock, **rate_fields(run), **verdict}
    is_baseline = verdict["word"] is None
    if is_baseline and (why := measured.why_undetermined):
        sentence = f"the speed of {run.name} is undetermined: {why}"
        return row | {"word": "undetermined", "verdict": sentence, "why": why}
    return row


def _below(compared: list[Arm], *, whole: bool) -> Iterator[str]:
    """Yield the time by purpose, and what else differs, as text."""
    base = compared[0]
    if spent := time_rows(arm.runs[0].log for arm in compared):
        yield "time by purpose, in seconds\n" + text_table(spent, whole=whole)
    for arm in compared[1:]:
        cause = attributed(base.logs, arm.logs, of="clock")
        head = printable(f"{arm.name} against {base.name}: {cause}")
        differing = difference_rows(base.runs[0].log, arm.runs[0].log)
        listed = differing and len(compared) <= MOST_LISTED
        yield head + ("\n" + text_table(differing, whole=whole) if listed else "")
