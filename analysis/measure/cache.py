"""Cache the rows of `runs` in the user's own cache folder, without ever returning a stale one.

An entry is valid for the files it was made of (size, inode, mtime and ctime of each) and for the
code that made it. A file changed moments ago is not cached: its next change may leave the same
times.
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
from configs.progress import counted
from runs.folder import RunFolder

SETTLED_S = 3.0
MAX_BYTES = 1 << 28
Entry = dict[str, Any]


def cached_entries(
    folder: Path, runs: Sequence[RunFolder], make: Callable[[RunFolder], Entry]
) -> list[Entry]:
    """Return the entry of each run of `folder` from the cache, or from `make` if files changed."""
    file = cache_file(folder)
    cached = _load(file)
    entries: list[Entry] = []
    kept: dict[str, Any] = {}
    changed = False
    for run in counted(runs, f"reading the runs in {folder}"):
        key = os.path.relpath(run.path, folder)
        state = _file_state(run)
        old = cached.get(key)
        if state is not None and isinstance(old, dict) and old.get("files") == state:
            entry = dict(old["entry"])
        else:
            entry, changed = make(run), True
        if state is not None and state == _file_state(run):
            kept[key] = {"files": state, "entry": entry}
        entries.append(entry)
    if changed and kept:
        _save(file, kept)
    return entries


def cache_file(folder: Path) -> Path:
    """Return the file of a folder's entries in `$XDG_CACHE_HOME/ditbench` or `~/.cache/ditbench`.

    The folder itself may belong to others, who could replace a file there by a link.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    return home / "ditbench" / f"runs-{name}.json"


def _file_state(run: RunFolder) -> list[list[Any]] | None:
    """Return the stat fields of a run's files, or None if one changed within `SETTLED_S`."""
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
    """Return the entries that this code wrote, or none if the cache is missing or damaged."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return {}
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    is_valid = isinstance(tree, dict) and tree.get("code") == code_hash()
    entries = tree.get("runs") if is_valid else None
    return entries if isinstance(entries, dict) else {}


def _save(path: Path, entries: dict[str, Any]) -> None:
    """Write the entries, and ignore a folder that cannot be written: a cache must never fail."""
    mask = os.umask(0o077)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"code": code_hash(), "runs": entries}) + "\n")
    except OSError:
        return
    finally:
        os.umask(mask)


@cache
def code_hash() -> str:
    """Return a hash of the code and of the GPU peaks, which entries depend on."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for folder in (root / "analysis", root / "configs"):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    digest.update((root / "configs" / "gpus.yaml").read_bytes())
    return digest.hexdigest()
