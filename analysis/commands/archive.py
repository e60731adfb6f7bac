"""`archive`: pack the records of runs, small enough to publish beside a paper."""

import argparse
import io
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from analysis.read.find import places
from analysis.read.machine import placement
from analysis.table import remark
from configs.disk import replacing
from configs.errors import Unreadable
from configs.files import read_text
from runs.folder import RunFolder
from runs.study_folder import StudyFolder, is_study_folder

EXAMPLE = "ditbench archive logs/layouts-1120 --out layouts.tar.xz"
# The folders of an absolute path, without its last name; no URL, no ratio.
_PATH = re.compile(r"(?<![\w./:~-])/(?:[\w.@+~=-]+/)+(?=[\w.@+~=-])")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the output file."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .tar.xz")


def run(args: argparse.Namespace) -> int:
    """Write the archive; raise `Unreadable` if there is no run folder or the file exists."""
    if not args.out.name.endswith(".tar.xz"):
        raise Unreadable(f"--out {args.out}: does not end in .tar.xz")
    if len(args.paths) != 1:
        raise Unreadable("archive takes one folder, of a study or of several runs")
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


def pack(folder: Path, runs: Sequence[RunFolder], out: Path) -> int:
    """Write the records of `runs` under `folder` to `out`; return its size in bytes.

    It holds configs, manifests, records and the study's own files: the data of every table and
    figure, but no weights, samples, traces or output. Names of machines and the folders of absolute
    paths are removed, so it can be published. The same runs give the same bytes.
    """
    files = dict(_files(folder, runs))
    machines = _machines(runs)
    with replacing(out) as file, tarfile.open(fileobj=file, mode="w:xz", preset=9) as archive:
        for name in sorted(files):
            data = _plain(read_text(files[name], follow_links=False), machines).encode()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.stat().st_size


def _files(folder: Path, runs: Sequence[RunFolder]) -> Iterator[tuple[str, Path]]:
    wanted: list[Path] = []
    for run in runs:
        changes = [run.attempt(number) / "overrides.yaml" for number in run.attempts()]
        wanted += [run.config_file, run.manifest_file, run.metrics_file, *changes]
    if is_study_folder(folder):
        study = StudyFolder(folder)
        wanted += [study.study_file, study.cells_file]
    for path in wanted:
        if path.is_file():
            yield str(path.relative_to(folder)), path


def _machines(runs: Sequence[RunFolder]) -> dict[str, str]:
    """Map every name of a machine in the manifests to `node1`, `node2`, ..., the longest first.

    A list of nodes counts as a name, and a short name may be a prefix of a full one.
    """
    seen: dict[str, None] = {}
    for run in runs:
        for entry in run.entries():
            slurm = entry.get("slurm", {})
            names = [entry.get("host"), slurm.get("cluster"), slurm.get("nodelist")]
            names += [p.get(key) for p in placement(entry) for key in ("node", "host")]
            seen |= dict.fromkeys(name for name in names if isinstance(name, str) and name)
    renamed = {name: f"node{number}" for number, name in enumerate(seen, start=1)}
    return dict(sorted(renamed.items(), key=lambda named: -len(named[0])))


def _plain(text: str, machines: Mapping[str, str]) -> str:
    """Return text without names of machines and without the folders of paths."""
    for name, instead in machines.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", instead, text)
    return _PATH.sub("", text)
