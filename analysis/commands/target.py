"""`target`: time to a target, and its factors."""

import argparse
from typing import Any

from analysis.measure.time_to_target import group_rows, group_runs, parse_target, time_to_target
from analysis.read.find import read_logs
from analysis.table import put, remark, with_intervals
from analysis.verdict import FIELDS, verdict_lines
from configs.errors import Unreadable

EXAMPLE = 'ditbench target logs/study-1120 --target "loss<=0.25"'


def options(parser: argparse.ArgumentParser) -> None:
    """Add the target."""
    parser.add_argument(
        "--target",
        required=True,
        metavar='"NAME<=VALUE"',
        help="a metric of the records and the value to reach, <= or >=",
    )


def run(args: argparse.Namespace) -> int:
    """Print the groups; return 1 if no run reached the target."""
    target = parse_target(args.target)
    logs, left = [], []
    for log in read_logs(args.paths):
        try:
            time_to_target(log, target)
            logs.append(log)
        except Unreadable as error:
            left.append(str(error))
    if not logs:
        raise Unreadable("\n".join(left))
    found = group_runs(logs, target)
    rows = group_rows(found)
    is_text = not (args.json or args.csv)
    put([_shown(row) for row in rows] if is_text else rows, args, json={"groups": rows})
    if is_text and (lines := verdict_lines(rows)):
        print("\n" + "\n".join(lines))
    args.rows = rows
    remark(f"left out: {why}" for why in left)
    remark(f"{name}: never reached {args.target}" for group in found for name in group.missed)
    return 0 if any(group.reached for group in found) else 1


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people."""
    own = {name: value for name, value in row.items() if name not in FIELDS}
    return {"run": row["run"], "verdict": row["word"]} | with_intervals(own)
