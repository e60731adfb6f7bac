"""`archive`: the evidence, small enough to be put beside a paper."""

import argparse
from pathlib import Path

from analysis.table import remark

DOC = "pack the records of runs into a small .tar.xz, without names of machines, for others to read"
EXAMPLE = "python -m analysis archive logs/layouts-1120 --out layouts.tar.xz"


def options(sub: argparse.ArgumentParser) -> None:
    """Where to."""
    sub.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .tar.xz")


def act(asked: argparse.Namespace) -> int:
    """Write the archive; 2 where there is no run of ours, or the file is there."""
    from analysis.archive import pack
    from analysis.read.find import places
    from configs.errors import Unreadable

    if not asked.out.name.endswith(".tar.xz"):
        raise Unreadable(f"--out {asked.out}: does not end in .tar.xz")
    if len(asked.paths) != 1:
        raise Unreadable("keep takes one folder: that of a study, or of several runs")
    (place,) = places(asked.paths)
    if not place.ours:
        raise Unreadable(f"{place.path}: no run folder in it")
    if asked.out.exists():
        raise Unreadable(f"{asked.out}: is there already; remove it, or name another file")
    try:
        size = pack(place.path, place.ours, asked.out)
    except (OSError, UnicodeDecodeError) as error:
        asked.out.unlink(missing_ok=True)
        raise Unreadable(f"{asked.out}: cannot be made: {error}") from None
    print(asked.out)
    remark([f"{len(place.ours)} runs, {size / 1e3:.0f} kB; read it as a folder: cells {asked.out}"])
    return 0
