"""`speed`: rates, and their ratios to the first run's."""

import argparse
from typing import Any

from analysis.gpus.load import explained, load_row, steady_load
from analysis.measure.clocks import CLOCKS
from analysis.measure.speed import Arm, attribution, group_arms, measure_rates
from analysis.measure.speed_table import difference_rows, display_row, speed_rows, time_rows
from analysis.read.find import read_logs
from analysis.table import put, remark
from analysis.verdict import verdict_lines
from configs.table import text_table
from configs.terminal import printable

EXAMPLE = "ditbench speed logs/one-rank logs/two-ranks --clock train"
MOST_LISTED = 4
# Sentences below a table; --json has all.
MOST_LINES = 8
# The columns to leave out first of a table that is too wide.
DROP = ("host-bound", "by 6N", "HFU", "MFU", "clock", "images/s", "95 %")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the clock and the pooling of repeats."""
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        help="; ".join(f"{name}: {meaning}" for name, meaning in CLOCKS.items())
        + " (default: the first of these that every run has)",
    )
    parser.add_argument(
        "--arms",
        action="store_true",
        help="pool runs that differ only in their seed: "
        "the intervals then come from the scatter between runs",
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison."""
    logs = read_logs(args.paths)
    measured = measure_rates(logs, clock=args.clock)
    grouped = group_arms(measured)
    compared = grouped if args.arms else [Arm(runs=(run,)) for run in measured]
    load_of = {run.log.path: steady_load(run) for run in measured}
    loads = [load_row(load_of[arm.runs[0].log.path]) for arm in compared]
    found = [row | load for row, load in zip(speed_rows(compared), loads, strict=True)]
    if args.json or args.csv:
        put(found, args)
    else:
        print(_text(compared, loads, whole=args.all))
    args.rows = found
    remark(
        line for run in measured for line in (*run.remarks, *explained(run, load_of[run.log.path]))
    )
    if not args.arms and len(measured) > len(grouped) > 1:
        remark(["some of these differ only in their seed: --arms pools them as repeats"])
    return 0


def _text(compared: list[Arm], loads: list[dict[str, Any]], *, whole: bool) -> str:
    """Return the rates, the time by purpose, the load, and what else differs, as text."""
    base = compared[0]
    rows = speed_rows(compared)
    parts = [text_table([display_row(row) for row in rows], drop=DROP, whole=whole)]
    parts += ["\n".join(verdicts)] if (verdicts := verdict_lines(rows)[:MOST_LINES]) else []
    if spent := time_rows(compared):
        parts.append("time by purpose, in seconds\n" + text_table(spent, whole=whole))
    if any("sm_ghz" in load for load in loads):
        names = (arm.runs[0].log.name for arm in compared)
        rows = [{"run": name, **load} for name, load in zip(names, loads, strict=True)]
        parts.append("the GPUs in the steady state\n" + text_table(rows, whole=whole))
    for arm in compared[1:]:
        head = printable(f"{arm.name} against {base.name}: {attribution(base, arm)}")
        differing = difference_rows(base, arm)
        listed = differing and len(compared) <= MOST_LISTED
        parts.append(head + ("\n" + text_table(differing, whole=whole) if listed else ""))
    return "\n\n".join(parts)
