"""Finds the runs, ours and others', under the paths that a person named."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from analysis.read import Unreadable
from analysis.read.foreign import Found, gather, is_text, read_folder, read_one, walk
from analysis.read.log import RunLog
from analysis.read.ours import read_ours
from configs.run import RunFolder, find_runs, is_run


def read_logs(paths: list[str]) -> list[RunLog]:
    """The log of every run under `paths`, in that order; `Unreadable` at the first damaged one."""
    found = read_all(paths)
    if found.unread:
        raise Unreadable("\n".join(why for _, why in found.unread))
    return list(found.logs)


def read_all(paths: list[str]) -> Found:
    """Every run under `paths`, those named twice once; `Unreadable` where a path has none."""
    seen: set[Path] = set()
    found = gather(_under(_existing(path), seen) for path in paths)
    return replace(found, logs=_named_apart(found.logs))


def _named_apart(logs: tuple[RunLog, ...]) -> tuple[RunLog, ...]:
    """Runs of one name get the name of their folder in front, then a number."""
    counts = Counter(log.name for log in logs)
    longer = [
        f"{log.path.parent.name}/{log.name}" if counts[log.name] > 1 else log.name for log in logs
    ]
    repeats, again = Counter(longer), Counter[str]()
    names = []
    for name in longer:
        again[name] += 1
        names.append(f"{name} ({again[name]})" if repeats[name] > 1 else name)
    return tuple(replace(log, name=name) for log, name in zip(logs, names, strict=True))


def text_files(paths: list[str]) -> list[Path]:
    """The text files under `paths` that are not ours."""
    found = []
    for path in map(_existing, paths):
        own = frozenset(run.path.resolve() for run in _our_runs(path)) if path.is_dir() else ()
        found += list(walk(path, without=frozenset(own))) if path.is_dir() else [path]
    return [path for path in dict.fromkeys(found) if is_text(path)]


def _existing(name: str) -> Path:
    path = Path(name)
    try:
        if path.exists():
            return path
    except (OSError, ValueError) as error:
        raise Unreadable(f"{name}: cannot be read ({error})") from None
    raise Unreadable(f"{name}: no such file or folder")


def _under(path: Path, seen: set[Path]) -> Found:
    """What stands under one path, apart from what was `seen` under another."""
    if path.resolve() in seen:
        return Found()
    if not path.is_dir():
        seen.add(path.resolve())
        found = read_one(path, name=path.name)
    else:
        ours = _our_runs(path)
        new = [run for run in ours if run.path.resolve() not in seen]
        seen.update(run.path.resolve() for run in ours)
        seen.add(path.resolve())
        own = [run.path.resolve() for run in ours]
        others = Found() if path.resolve() in own else read_folder(path, without=own)
        found = gather([*(_ours(run) for run in new), others])
        if ours and not new:
            return found
    if not found.logs and not found.unread:
        raise Unreadable(f"{path}: no run in it: neither a run folder nor a log that is known")
    return found


def _our_runs(path: Path) -> list[RunFolder]:
    """Our runs in a folder; a `config.yaml` of somebody else hides none of those below it."""
    if is_run(path) and not _is_ours(RunFolder(path)):
        inner = (child for child in sorted(path.iterdir()) if child.is_dir())
        return [run for child in inner for run in _our_runs(child)]
    return [run for run in find_runs(path) if _is_ours(run)]


def _is_ours(run: RunFolder) -> bool:
    """Whether a folder with a `config.yaml`, which others have too, is one of our runs."""
    return (run.path / "attempts").is_dir() or run.metrics_file.exists()


def _ours(run: RunFolder) -> Found:
    try:
        return Found(logs=(read_ours(run),))
    except Unreadable as error:
        return Found(unread=((run.name, str(error)),))
