"""`cells --fid`: the quality of samples, by arms."""

import argparse
from typing import Any

from analysis.commands import share
from analysis.measure.quality import GUIDANCE, MARGIN, qualities, quality_rows
from analysis.read.find import read_logs
from analysis.table import put, remark, with_intervals
from analysis.verdict import FIELDS, ratio_text, verdict_lines
from configs.errors import Unreadable

EXAMPLE = "ditbench cells logs/layouts-1120 --fid"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the margin of equivalent distances."""
    parser.add_argument(
        "--margin", type=share, default=MARGIN, help="for equivalent (default: 0.02)"
    )


def run(args: argparse.Namespace) -> int:
    """Print a row per arm, the first being the baseline."""
    arms = qualities(read_logs(args.paths))
    if not arms:
        raise Unreadable("no run records a FID without its bias: evaluate.fid, or `train fid`")
    rows = quality_rows(arms, margin=args.margin)
    put([_shown(row) for row in rows] if not (args.json or args.csv) else rows, args, json=rows)
    if not (args.json or args.csv):
        print("\n" + "\n".join(verdict_lines(rows)))
    args.rows = rows
    remark([GUIDANCE])
    return 0


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people, with the verdict beside the name."""
    ratio = ratio_text(row["ratio"], row["low"], row["high"])
    own = {name: value for name, value in row.items() if name not in FIELDS}
    return {"run": row["run"], "ratio": ratio, "verdict": row["word"]} | with_intervals(own)
