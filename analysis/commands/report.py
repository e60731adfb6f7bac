"""`report`: one self-contained HTML page on runs, or a folder of pages, and its check."""

import argparse
import os
from pathlib import Path

from analysis.commands import share, writing
from analysis.report.build import INDEX, ReportRecord, build, read_record
from analysis.report.check import check
from analysis.table import put, remark
from configs.disk import replace_file
from configs.errors import Unreadable

EXAMPLE = """ditbench report logs/one-rank logs/two-ranks --out report.html
  ditbench report logs docs/measurements/a-grid-small.tar.xz --folder public
  ditbench report --check public"""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the output, what else is shown, and the check."""
    out = parser.add_mutually_exclusive_group()
    out.add_argument("--out", type=Path, metavar="FILE", help="the page (default: report.html)")
    out.add_argument(
        "--folder", type=Path, help="instead: a folder with a page per study, and their samples"
    )
    check_help = "write nothing: recompute every number of the pages or folders PATH"
    out.add_argument("--check", action="store_true", help=check_help)
    parser.add_argument("--site", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--title", default="Runs compared")
    parser.add_argument(
        "--margin", type=share, default=0.01, help="of the same loss (default: 0.01)"
    )
    parser.add_argument("--rates", metavar="FILE", help="prices of a GPU-hour, as of `cost`")


def run(args: argparse.Namespace) -> int:
    """Write the page or the folder and return 1 if a run could not be read; or check some."""
    if args.site:
        raise Unreadable("--site is now --folder FOLDER; to check one: report --check FOLDER")
    if args.check:
        return max(_check(Path(path), args) for path in args.paths)
    page = None if args.folder else args.out or Path("report.html")
    out = page.parent if page else args.folder
    before = read_record(out).pages if page is None and _holds_report(out) else []
    paths, rates = (
        [os.path.relpath(Path(path).resolve(), out.resolve()) for path in listed]
        for listed in (args.paths, [args.rates] if args.rates else [])
    )
    record = ReportRecord(
        title=args.title, margin=args.margin, paths=paths,
        rates=next(iter(rates), None), page=page.name if page else None,
    )  # fmt: skip
    made = build(record, out)
    with writing(page or out):
        for name, content in made.files.items():
            if page is None:
                (out / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(out / name, content)
        for name in {*before} - made.files.keys():
            (out / name).unlink(missing_ok=True)  # of a study that is no longer there
    print(*(out / name for name in made.files if name.endswith((INDEX, ".csv")) or page), sep="\n")
    size = sum(map(len, made.files.values()))
    remark([f"{len(made.files)} files, {size / 1e6:.1f} MB", *made.unread])
    return 1 if made.unread else 0


def _holds_report(out: Path) -> bool:
    """Whether a folder holds a report; raise `Unreadable` if it holds anything else."""
    if not out.exists():
        return False
    if out.is_dir() and ((out / INDEX).exists() or not any(out.iterdir())):
        return (out / INDEX).exists()
    raise Unreadable(f"--folder {out}: holds something else than a report; name a new folder")


def _check(path: Path, args: argparse.Namespace) -> int:
    rows, remarks, count = check(path)
    remark(f"{path}: {line}" for line in remarks)
    if rows:
        put(rows, args)
    else:
        print(f"{path}: {count} numbers agree with their sources")
    return 1 if rows else 0
