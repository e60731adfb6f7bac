"""`report`: one page to put in front of somebody."""

import argparse
from pathlib import Path

from analysis.table import csv_table, remark

DOC = "one self-contained HTML page on the runs, the first the baseline, and a CSV beside it"
EXAMPLE = "python -m analysis report logs/one-rank logs/two-ranks --out report.html"


def options(sub: argparse.ArgumentParser) -> None:
    """Where to, the title and the margin."""
    sub.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE")
    sub.add_argument("--title", default="Runs compared")
    sub.add_argument("--margin", type=float, default=0.01, help="of the same loss (default: 0.01)")


def act(asked: argparse.Namespace) -> int:
    """Write the page; 1 where a run could not be read."""
    from analysis.read.find import read_all
    from analysis.report.report import report
    from configs.errors import Unreadable

    found = read_all(asked.paths)
    if not found.logs:
        raise Unreadable("\n".join(why for _, why in found.unread))
    made = report(found, title=asked.title, beside=asked.out.parent, margin=asked.margin)
    table = asked.out.with_suffix(".csv")
    try:
        asked.out.write_text(made.html, encoding="utf-8")
        table.write_text(csv_table(made.rows) + "\n", encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{asked.out}: cannot be written: {error.strerror}") from None
    print(f"{asked.out}\n{table}")
    remark(why for _, why in found.unread)
    return 1 if found.unread else 0
