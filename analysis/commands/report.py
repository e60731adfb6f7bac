"""`report`: one self-contained HTML page on a set of runs."""

import argparse
from pathlib import Path

from analysis.commands import share, writing
from analysis.read.find import read_all
from analysis.report.report import report
from analysis.table import remark
from configs.disk import replace_file
from configs.errors import Unreadable
from configs.table import csv_text

EXAMPLE = "ditbench report logs/one-rank logs/two-ranks --out report.html"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the output file, the title and the margin."""
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE")
    parser.add_argument("--title", default="Runs compared")
    parser.add_argument(
        "--margin", type=share, default=0.01, help="of the same loss (default: 0.01)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the page; return 1 if a run could not be read."""
    found = read_all(args.paths)
    if not found.logs:
        raise Unreadable("\n".join(why for _, why in found.unread))
    page = report(found, title=args.title, beside=args.out.parent, margin=args.margin)
    table = args.out.with_suffix(".csv")
    with writing(args.out):
        replace_file(args.out, page.html)
        replace_file(table, csv_text(page.rows) + "\n")
    print(f"{args.out}\n{table}")
    remark(why for _, why in found.unread)
    return 1 if found.unread else 0
