"""`archive`: pack the records of runs, small enough to publish beside a paper."""

import argparse
from pathlib import Path

from analysis.archive import pack
from analysis.read.find import places
from analysis.table import remark
from configs.errors import Unreadable

EXAMPLE = "ditbench archive logs/layouts-1120 --out layouts.tar.xz"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the output file."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .tar.xz")


def run(args: argparse.Namespace) -> int:
    """Write the archive; raise `Unreadable` if there is no run folder or the file exists."""
    if not args.out.name.endswith(".tar.xz"):
        raise Unreadable(f"--out {args.out}: does not end in .tar.xz")
    if len(args.paths) != 1:
        raise Unreadable("archive takes one folder: that of a study, or of several runs")
    (place,) = places(args.paths)
    if not place.ours:
        raise Unreadable(f"{place.path}: no run folder in it")
    if args.out.exists():
        raise Unreadable(f"{args.out}: exists already; remove it, or name another file")
    try:
        size = pack(place.path, place.ours, args.out)
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{args.out}: cannot be written: {error}") from None
    print(args.out)
    remark([f"{len(place.ours)} runs, {size / 1e3:.0f} kB; read it as a folder: cells {args.out}"])
    return 0
