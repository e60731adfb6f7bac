"""`target`: time to a target, and its factors."""

import argparse

from analysis.measure.target_groups import group_repeats, group_rows
from analysis.measure.time_to_target import parse_target, times_to_target
from analysis.read.find import read_logs
from analysis.table import put, remark
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
    times, remarks = times_to_target(read_logs(args.paths), parse_target(args.target))
    if not times:
        raise Unreadable("\n".join(remarks))
    found = group_repeats(times)
    rows = group_rows(found)
    put(rows, args, json={"groups": rows})
    remark([*remarks, *(line for group in found for line in group.remarks)])
    remark(f"{name}: never reached {args.target}" for group in found for name in group.missed)
    return 0 if any(group.reached for group in found) else 1
