"""`compare`: speed, loss and quality of runs or arms against the first, one verdict each."""

import argparse

from analysis.commands import add_margin
from analysis.measure.detectors import detect
from analysis.measure.loss_curve import axis_of
from analysis.read.find import read_logs
from analysis.stats.replicates import FEWEST
from analysis.study.cells import started_runs
from analysis.study.compare import arms_of, compare_all, differences_of, told
from analysis.table import put, put_more, remark
from analysis.verdict import ratio_text
from configs.errors import Unreadable
from configs.terminal import printable

EXAMPLE = "ditbench compare logs/one-rank logs/two-ranks"
# Of more arms the sentences would hide the table.
MOST_ARMS = 6


def options(parser: argparse.ArgumentParser) -> None:
    """Add the axis and the margin of losses."""
    parser.add_argument(
        "--by", choices=("step", "images"), help="align losses on this (default: images if known)"
    )
    add_margin(parser)


def run(args: argparse.Namespace) -> int:
    """Print a row per arm and quantity, a sentence for each, and what differs."""
    logs = started_runs(read_logs(args.paths))
    if len(logs) < 2:
        raise Unreadable(f"{args.paths[0]}: {len(logs)} run that began; compare takes two or more")
    arms = arms_of(logs)
    rows = compare_all(arms, by=args.by or axis_of(logs), margin=args.margin)
    differ = differences_of(arms)
    if args.json or args.csv:
        put(rows, args, json={"comparisons": rows, "differences": differ})
    else:
        shown = [
            {name: row[name] for name in ("run", "quantity")}
            | {"ratio": ratio_text(row["ratio"], row["low"], row["high"]), "verdict": row["word"]}
            for row in rows
        ]
        put(shown, args)
        if len(arms) <= MOST_ARMS:
            lines = map(told, rows)
            print("\n" + "\n".join(map(printable, lines)))
        put_more(differ, args, title=f"what differs from {arms[0].name}:")
    counts = [len(arm.runs) for arm in arms]
    if counts[0] < FEWEST <= max(counts):
        hint = "name the runs to compare, the baseline first"
        remark([f"{arms[0].name}: the baseline has fewer runs than other arms; {hint}"])
    findings = [row for log in logs for row in detect(log)]
    remark(f"{row['run']}: {row['detail']}" for row in findings if row["finding"] == "divergence")
    remark(line for arm in arms for measured in arm.runs for line in measured.remarks)
    return 0
