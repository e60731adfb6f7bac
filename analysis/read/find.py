"""Find run folders and logs of other trainers under the paths that a user named."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.read.other_logs import ReadLogs, gather, read_folder, read_one, what_is
from analysis.read.run_folder import read_ours
from analysis.read.run_log import RunLog
from analysis.read.run_names import named
from analysis.read.tar_archive import is_archive, unpacked
from configs.errors import Unreadable
from configs.run.folder import RunFolder, find_runs, is_run
from configs.run.study_folder import StudyFolder, is_study_folder


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
        ours = _our_runs(path) if path.is_dir() else []
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
    parts = []
    for place in places(paths):
        found = gather([*(_ours(run) for run in place.ours), read_others(place)])
        _refuse_empty(place, found)
        parts.append(found)
    found = gather(parts)
    return replace(found, logs=tuple(named(found.logs)))


def _refuse_empty(place: PathContents, found: ReadLogs) -> None:
    if place.has_others and not found.logs and not found.unread and not place.ours:
        what = "a folder without a log" if place.path.is_dir() else what_is(place.path)
        raise Unreadable(f"{place.path}: no run in it: {what}")


def read_others(place: PathContents) -> ReadLogs:
    """Return the runs of other trainers under a path."""
    if not place.has_others:
        return ReadLogs()
    if not place.path.is_dir():
        found = read_one(place.path, name=place.path.name)
        _refuse_empty(place, found)
        return found
    own = {run.path.resolve() for run in place.ours} | {
        run.path.resolve() for run in _our_runs(place.path)
    }
    found = read_folder(place.path, without=own)
    _refuse_empty(place, found)
    return found


def _existing(name: str) -> Path:
    """Return the path of a file or a folder; for an archive, a folder with its contents.

    A pipe is refused: reading it would block.
    """
    path = Path(name)
    try:
        is_there, is_read = path.exists(), path.is_file() or path.is_dir()
    except (OSError, ValueError) as error:
        raise Unreadable(f"{name}: cannot be read ({error})") from None
    if not is_read:
        why = "neither a file nor a folder" if is_there else "no such file or folder"
        raise Unreadable(f"{name}: {why}")
    return unpacked(path) if is_archive(path) else path


def _our_runs(path: Path) -> list[RunFolder]:
    """Return the run folders in a folder; a `config.yaml` of another tool hides none below it."""
    if is_run(path) and not _is_ours(RunFolder(path)):
        inner = (child for child in sorted(path.iterdir()) if child.is_dir())
        return [run for child in inner for run in _our_runs(child)]
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


def _ours(run: RunFolder) -> ReadLogs:
    try:
        return ReadLogs(logs=(read_ours(run),))
    except Unreadable as error:
        return ReadLogs(unread=((run.name, str(error)),))
