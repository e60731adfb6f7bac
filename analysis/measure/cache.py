"""A cache of what `runs` says of run folders, kept in the folder of logs: never wrong.

An entry holds for the very files it was made of (size, inode and both times of each) and the very
code. A file touched moments ago is not trusted to show its next change in its times.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from configs.disk import replace_file
from configs.run.folder import RunFolder

NAME = ".analysis-runs.json"
SETTLED_S = 3.0
LARGEST = 1 << 28
Entry = dict[str, Any]


def cached_entries(
    folder: Path, runs: Sequence[RunFolder], make: Callable[[RunFolder], Entry]
) -> list[Entry]:
    """The entry of each run: from the cache in `folder` where its files are the same, else made."""
    known = _load(folder / NAME)
    entries: list[Entry] = []
    kept: dict[str, Any] = {}
    changed = False
    for run in runs:
        key = os.path.relpath(run.path, folder)
        mark = _mark(run)
        told = known.get(key)
        if mark is not None and isinstance(told, dict) and told.get("mark") == mark:
            entry = dict(told["entry"])
        else:
            entry, changed = make(run), True
        if mark is not None and mark == _mark(run):
            kept[key] = {"mark": mark, "entry": entry}
        entries.append(entry)
    if changed:
        _save(folder / NAME, kept)
    return entries


def _mark(run: RunFolder) -> list[list[Any]] | None:
    """What identifies the files of a run; None where one was touched too lately to tell."""
    overrides = [run.attempt(number) / "overrides.yaml" for number in run.attempts()]
    found: list[list[Any]] = []
    for path in (run.config_file, run.manifest_file, run.metrics_file, *overrides):
        try:
            status = path.stat()
        except FileNotFoundError:
            found.append([path.name, None])
            continue
        except OSError:
            return None
        newest = max(status.st_mtime_ns, status.st_ctime_ns)
        if time.time_ns() - newest < SETTLED_S * 1e9:
            return None
        times = [status.st_mtime_ns, status.st_ctime_ns]
        found.append([str(path.relative_to(run.path)), status.st_size, status.st_ino, *times])
    return found


def _load(path: Path) -> dict[str, Any]:
    """The entries of this very code; none where there is no sound cache."""
    try:
        if path.stat().st_size > LARGEST:
            return {}
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    sound = isinstance(tree, dict) and tree.get("code") == code()
    entries = tree.get("runs") if sound else None
    return entries if isinstance(entries, dict) else {}


def _save(path: Path, entries: dict[str, Any]) -> None:
    """Keep the entries where the folder may be written to: a cache is never a reason to fail."""
    mask = os.umask(0o077)
    try:
        replace_file(path, json.dumps({"code": code(), "runs": entries}) + "\n")
    except OSError:
        return
    finally:
        os.umask(mask)


@cache
def code() -> str:
    """A hash of the code, and of the peaks, that make entries: one of other code says nothing."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for folder in (root / "analysis", root / "configs"):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    digest.update((root / "configs" / "gpus.yaml").read_bytes())
    return digest.hexdigest()
