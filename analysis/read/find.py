"""Find run folders and logs of other trainers under the paths that a user named, and read them."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.read.other_logs import read_file, what_is
from analysis.read.run_folder import read_ours
from analysis.read.run_log import RunLog
from analysis.read.run_names import named
from analysis.read.tar_archive import in_archive
from configs.errors import ConfigError, Unreadable
from configs.files import open_regular
from configs.progress import counted
from runs.folder import RunFolder, find_runs, is_run
from runs.jobs import job_of_attempt
from runs.study_folder import StudyFolder, is_study_folder

# Files that should hold a run; a folder's other files are skipped without a remark.
LOG_SUFFIXES = frozenset(["", ".log", ".txt", ".out", ".err", ".csv", ".tsv", ".jsonl", ".wandb"])
SKIPPED = frozenset([".git", ".code", ".venv", "__pycache__", "node_modules", ".ipynb_checkpoints"])
_OF_WANDB = re.compile(r"run-[^/]+\.wandb")


@dataclass(frozen=True, kw_only=True)
class ReadLogs:
    """The runs that were read, and (name, reason) of what could not be."""

    logs: tuple[RunLog, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class PathContents:
    """The run folders under one path, and whether logs of other trainers may be there too."""

    path: Path
    ours: tuple[RunFolder, ...]
    has_others: bool


def places(paths: list[str]) -> list[PathContents]:
    """Return the paths with their run folders, each once; raise `Unreadable` if one is missing."""
    seen: set[Path] = set()
    found = []
    for path in map(_existing, paths):
        ours = _our_runs(path)
        new = tuple(run for run in ours if run.path.resolve() not in seen)
        is_own = any(run.path.resolve() == path.resolve() for run in ours)
        # A study's folder holds only its cells and results made of them.
        has_others = not (is_own or is_study_folder(path)) and path.resolve() not in seen
        found.append(PathContents(path=path, ours=new, has_others=has_others))
        seen.update([path.resolve(), *(run.path.resolve() for run in ours)])
    return found


def read_logs(paths: list[str]) -> list[RunLog]:
    """Return the log of every run under `paths`, in order; raise `Unreadable` if one is damaged."""
    found = read_all(paths)
    if found.unread:
        raise Unreadable("\n".join(why for _, why in found.unread))
    return list(found.logs)


def read_all(paths: list[str]) -> ReadLogs:
    """Return every run under `paths`, each once; raise `Unreadable` if a path has none."""
    logs: list[RunLog] = []
    unread: list[tuple[str, str]] = []
    for place in places(paths):
        for run in counted(place.ours, f"reading the runs in {place.path}"):
            try:
                logs.append(read_ours(run))
            except Unreadable as error:
                unread.append((run.name, str(error)))
        others = _read_others(place)
        logs += others.logs
        unread += others.unread
    return ReadLogs(logs=tuple(named(logs)), unread=tuple(unread))


def _read_others(place: PathContents) -> ReadLogs:
    """Return the runs of other trainers under a path; raise `Unreadable` if it has no run at all.

    A remark on the first run of a folder counts the text files that hold none.
    """
    if not place.has_others:
        return ReadLogs()
    logs: list[RunLog] = []
    unread, empty = [], []
    for path, name in _files(place.path):
        try:
            found = read_file(path, name=name)
        except Unreadable as error:
            unread.append((name, str(error)))
            continue
        logs += found
        if not found and path.suffix in LOG_SUFFIXES:
            empty.append(path)
    if not (logs or unread or place.ours):
        what = "a folder without a log" if place.path.is_dir() else what_is(place.path)
        raise Unreadable(f"{place.path}: no run in it: {what}")
    if logs and empty:
        kinds = Counter(what_is(path).partition(":")[0].partition(" of ")[0] for path in empty)
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        counts = f"{len({log.path for log in logs})} files read, {len(empty)} not"
        remark = f"{place.path}: {counts}: {listed} (the first is {empty[0]})"
        logs[0] = replace(logs[0], remarks=(*logs[0].remarks, remark))
    return ReadLogs(logs=tuple(logs), unread=tuple(unread))


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a file, or those under a folder in the order of their names, but no links; and names.

    Left out are run folders and studies, the output of their jobs, tables of runs beside them or
    beside a report, and what wandb keeps beside its records.
    """
    if not path.is_dir():
        yield path, path.name
    ours = _our_runs(path)
    own = {run.path.resolve() for run in ours}
    jobs = {job for run in ours for job in _jobs(run)}
    for here, folders, files in os.walk(path):
        below = [Path(here) / name for name in sorted(folders) if name not in SKIPPED]
        kept = (one for one in below if one.resolve() not in own and not is_study_folder(one))
        folders[:] = [folder.name for folder in kept]
        if of_wandb := [name for name in files if _OF_WANDB.fullmatch(name)]:
            folders[:], files = [], of_wandb
        for file in (Path(here) / name for name in sorted(files)):
            if not file.is_file() or file.is_symlink():
                continue
            is_of_job = file.suffix == ".out" and file.stem.rpartition("-")[2] in jobs
            if not (is_of_job or _is_table_of_runs(file, has_runs=bool(own))):
                yield file, _name(file, path)


def _jobs(run: RunFolder) -> set[str]:
    """Return the ids of the Slurm jobs that a run had; none if its manifest is damaged."""
    try:
        return {job for entry in run.entries() if (job := job_of_attempt(entry))}
    except ConfigError:
        return set()


def _is_table_of_runs(file: Path, *, has_runs: bool) -> bool:
    """Whether a command made a table of runs that are beside it, or on a page beside it."""
    if file.suffix != ".csv" or not (has_runs or file.with_suffix(".html").exists()):
        return False
    with open_regular(file) as table:
        return table.read(4) == b"run,"


def _name(path: Path, folder: Path) -> str:
    return str(Path(folder.resolve().name) / path.relative_to(folder))


def _existing(name: str) -> Path:
    """Return the path of a file or a folder; for an archive, a folder with its contents.

    `a.tar.xz/cells/x` is a path in an archive. A pipe is refused: reading it would block.
    """
    try:
        path = in_archive(Path(name))
        is_there, is_read = path.exists(), path.is_file() or path.is_dir()
    except Unreadable:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(f"{name}: cannot be read ({error})") from None
    if not is_read:
        why = "neither a file nor a folder" if is_there else "no such file or folder"
        raise Unreadable(f"{name}: {why}")
    return path


def _our_runs(path: Path) -> list[RunFolder]:
    """Return the run folders in a folder; a `config.yaml` of another tool hides none below it."""
    if not path.is_dir():
        return []
    if is_run(path) and not _is_ours(RunFolder(path)):
        return [run for child in sorted(path.iterdir()) for run in _our_runs(child)]
    return sorted(filter(_is_ours, find_runs(path)), key=_grid_places(path))


def _grid_places(path: Path) -> Callable[[RunFolder], int]:
    """Return a key: the place of a run in its study's grid, if a path is in a study."""
    studies = [folder for folder in (path, path.resolve().parent) if is_study_folder(folder)]
    rows = StudyFolder(studies[0]).in_grid_order() if studies else []
    order = {row.cell: place for place, row in enumerate(rows)}
    return lambda run: order.get(run.name, len(order))


def _is_ours(run: RunFolder) -> bool:
    """Whether a folder with a `config.yaml`, which other tools write too, is a run folder."""
    return (run.path / "attempts").is_dir() or run.metrics_file.exists()
