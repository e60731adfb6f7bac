"""`report --site`: a static site of runs and studies that one explores, and its check."""

import argparse
import os
from pathlib import Path

from analysis.commands import share, writing
from analysis.site.build import RECORD, SiteRecord, build, read_record
from analysis.site.check import check
from analysis.table import put, remark
from configs.errors import Unreadable

EXAMPLE = """ditbench report --site logs docs/measurements/a-grid-small.tar.xz --out public
  ditbench report --site --check public"""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the output folder, what else is shown, and the check."""
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="the folder of the site")
    parser.add_argument("--title", default="Runs and studies")
    parser.add_argument(
        "--margin", type=share, default=0.01, help="of the same loss (default: 0.01)"
    )
    parser.add_argument(
        "--claims", action="append", default=[], metavar="FILE", help="claims, as of `audit`"
    )
    parser.add_argument("--rates", metavar="FILE", help="prices of a GPU-hour, as of `cost`")
    parser.add_argument(
        "--check", action="store_true", help="write nothing: recompute every number of the sites "
        "PATH from their sources; exit 1 if one differs",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Write the site and return 1 if a run could not be read; or check sites."""
    if args.check:
        return max(_check(Path(path), args) for path in args.paths)
    if args.out is None:
        raise Unreadable("--out is missing: name the folder that the site is written to")
    out = args.out
    if out.exists() and not ((out / RECORD).exists() or (out.is_dir() and not any(out.iterdir()))):
        raise Unreadable(f"--out {out}: holds something else than a site; name a new folder")
    before = read_record(out).pages if (out / RECORD).exists() else []
    paths, claims, rates = (
        [os.path.relpath(Path(path).resolve(), out.resolve()) for path in listed]
        for listed in (args.paths, args.claims, [args.rates] if args.rates else [])
    )
    record = SiteRecord(
        title=args.title, margin=args.margin, paths=paths, claims=claims,
        rates=next(iter(rates), None),
    )  # fmt: skip
    site = build(record, out)
    with writing(out):
        for name, content in site.files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)
        for page in out.rglob("*.html"):
            name = page.relative_to(out).as_posix()
            if name in before and name not in site.files:
                page.unlink()  # of a run that is no longer there
    print(out / "index.html")
    size = sum(map(len, site.files.values()))
    remark([f"{len(site.files)} files, {size / 1e6:.1f} MB", *site.unread])
    return 1 if site.unread else 0


def _check(site: Path, args: argparse.Namespace) -> int:
    rows, remarks, count = check(site)
    remark(f"{site}: {line}" for line in remarks)
    if rows:
        put(rows, args)
    else:
        print(f"{site}: {count} numbers agree with their sources")
    return 1 if rows else 0
