"""`report`: one self-contained HTML page on runs, and its check."""

import argparse
import os
from pathlib import Path

from analysis.commands import add_margin, writing
from analysis.report.build import ReportRecord, build, check
from analysis.table import put, remark
from configs.disk import replace_file

EXAMPLE = """ditbench report logs/one-rank logs/two-ranks --out report.html
  ditbench report --check report.html"""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the output, what else is shown, and the check."""
    out = parser.add_mutually_exclusive_group()
    out.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE",
        help="the page (default: report.html)",
    )  # fmt: skip
    out.add_argument(
        "--check", action="store_true", help="write nothing: recompute every number of pages PATH"
    )
    parser.add_argument("--title", default="Runs compared")
    add_margin(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and return 1 if a run could not be read; or check some."""
    if args.check:
        return max(_check(Path(path), args) for path in args.paths)
    folder = args.out.parent
    paths = [os.path.relpath(Path(path).resolve(), folder.resolve()) for path in args.paths]
    record = ReportRecord(title=args.title, margin=args.margin, paths=paths)
    made = build(record, folder)
    with writing(args.out):
        replace_file(args.out, made.page.encode())
    print(args.out)
    remark([f"{len(made.page) / 1e6:.1f} MB", *made.unread])
    return 1 if made.unread else 0


def _check(page: Path, args: argparse.Namespace) -> int:
    rows, remarks, count = check(page)
    remark(f"{page}: {line}" for line in remarks)
    if rows:
        put([{"page": page.name, **row} for row in rows], args)
    else:
        print(f"{page}: {count} numbers agree with their sources")
    return 1 if rows else 0
