"""`speed`: steady rates, and their ratios to the first run's."""

import argparse
from typing import TYPE_CHECKING

from analysis.table import put, remark, text_table
from configs.terminal import printable

if TYPE_CHECKING:
    from analysis.measure.speed import Arm

DOC = "steady rate of each run and its speedup over the first, with 95 % intervals"
EXAMPLE = "python -m analysis speed logs/one-rank logs/two-ranks --clock train"
MOST_LISTED = 4
CLOCKS = ("train", "compute", "wall", "bar", "printed")


def options(sub: argparse.ArgumentParser) -> None:
    """Which clock, and whether repeats are pooled."""
    sub.add_argument(
        "--clock",
        choices=CLOCKS,
        help="train: steps with their waits for data; compute: without these waits; wall: time of "
        "day, without the intervals that hold a save, a sampling or an evaluation; bar: a progress "
        "bar's own; printed: rates as a log prints them (default: the first of train, bar, wall, "
        "printed that every run has)",
    )
    sub.add_argument(
        "--arms",
        action="store_true",
        help="pool runs whose config and machine are alike but for the seed: "
        "the intervals then come from the scatter between runs",
    )
    sub.add_argument(
        "--flops",
        action="store_true",
        help="instead, utilisation of the peak: by the model's own arithmetic (MFU), with what is "
        "computed again (HFU), and by 6 x parameters x tokens, which overstates a DiT",
    )


def act(asked: argparse.Namespace) -> int:
    """Print the comparison; 2 where nothing can be read."""
    from analysis.measure.clocks import choose_clocks
    from analysis.measure.speed import Arm, group_arms, measure_rate
    from analysis.measure.speed_table import flops_rows, speed_rows
    from analysis.read.find import read_logs

    logs = read_logs(asked.paths)
    clocks = [asked.clock] * len(logs) if asked.clock else choose_clocks(logs)
    measured = [measure_rate(log, clock=clock) for log, clock in zip(logs, clocks, strict=True)]
    grouped = group_arms(measured)
    compared = grouped if asked.arms else [Arm(runs=(run,)) for run in measured]
    found = flops_rows(compared) if asked.flops else speed_rows(compared)
    if asked.json or asked.csv or asked.flops:
        put(found, asked)
    else:
        print(_text(compared))
    asked.rows = found
    remark(line for run in measured for line in run.remarks)
    if not asked.arms and len(measured) > len(grouped) > 1:
        remark(["some of these are alike but for the seed: --arms pools them as repeats"])
    return 0


def _text(compared: "list[Arm]") -> str:
    """The rates, where the time went, and what else differs."""
    from analysis.measure.speed import attribution
    from analysis.measure.speed_table import difference_rows, display_row, speed_rows, time_rows

    base = compared[0]
    parts = [text_table([display_row(row) for row in speed_rows(compared)])]
    if spent := time_rows(compared):
        parts.append("where the time went, in seconds\n" + text_table(spent))
    for arm in compared[1:]:
        head = printable(f"{arm.name} against {base.name}: {attribution(base, arm)}")
        differing = difference_rows(base, arm)
        listed = differing and len(compared) <= MOST_LISTED
        parts.append(head + ("\n" + text_table(differing) if listed else ""))
    return "\n\n".join(parts)
