"""Keep the logs that a user's script writes below its working directory.

What is new in event files, wandb files, CSV and JSON lines when the script has ended is copied to
`attempts/NNN/logs/`. If another run was under way in the same folders, only files with the name of
this run in their path are: which run wrote the others is unknown.
"""

import os
from contextlib import suppress
from pathlib import Path

from configs.errors import ConfigError
from configs.files import open_regular, read_bytes
from runs.folder import RunFolder, find_runs
from runs.study_folder import study_of

SUFFIXES = (".csv", ".jsonl", ".wandb")
# Below the folder of an attempt.
KEPT = "logs"
_SKIPPED = ("__pycache__", "node_modules", "site-packages")
# In larger trees, such as a data set, nothing is looked for.
_MOST_PLACES = 4000
_MOST_FILES, _MOST_BYTES = 64, 2**26
_TAIL_BYTES = 4096


# A file at one time: its size and its last bytes.
LogFile = tuple[int, bytes]


def log_files(folder: Path) -> dict[Path, LogFile] | None:
    """Return the files below a folder that are named like logs; None if the tree is large.

    Run folders are left out, and folders with a hidden name.
    """
    found: dict[Path, LogFile] = {}
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        status = os.stat(place)
        is_of_study = "cells.tsv" in files or ("config.yaml" in files and "attempts" in folders)
        if (status.st_dev, status.st_ino) in seen or is_of_study:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if name[0] != "." and name not in _SKIPPED]
        for name in files:
            if "tfevents" in name or name.endswith(SUFFIXES):
                # A link, a pipe, or a file of others is none of the script's.
                with suppress(OSError):
                    found[Path(place, name)] = _look(Path(place, name))
        if len(seen) + len(found) > _MOST_PLACES:
            return None
    return found


def _look(path: Path) -> LogFile:
    with open_regular(path, follow_links=False) as file:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - _TAIL_BYTES))
        return status.st_size, file.read(_TAIL_BYTES)


def keep_logs(run: RunFolder, attempt: int, before: dict[Path, LogFile] | None) -> None:
    """Copy what is new below the working directory; `before` is what was there at the start."""
    after = log_files(Path()) if before is not None else None
    if before is None or after is None:
        return
    # The event and wandb files of an earlier program belong to that.
    changed = [
        path
        for path, now in after.items()
        if before.get(path) != now and (path not in before or path.suffix in (".csv", ".jsonl"))
    ]
    if changed and _shares_folder(run, attempt):
        study = study_of(run.path)
        # What `{run}` stands for in a value that is varied.
        name = f"{study.path.name}-{run.name}" if study else run.name
        changed = [path for path in changed if {name, f"{name}{path.suffix}"} & {*path.parts}]
    for path in changed[:_MOST_FILES]:
        with suppress(OSError):
            content = _new_part(path, before.get(path))
            kept = run.attempt(attempt) / KEPT / path
            kept.parent.mkdir(parents=True, exist_ok=True)
            with kept.open("xb") as file:
                file.write(content)


def _new_part(path: Path, before: LogFile | None) -> bytes:
    """Return the content; of a file that has only grown the lines added, below a CSV's header."""
    content = read_bytes(path, most=_MOST_BYTES, follow_links=False)
    size, tail = before or (0, b"")
    if len(content) < size or not content[:size].endswith(tail):
        return content
    header = content.partition(b"\n")[0] + b"\n" if path.suffix == ".csv" and size else b""
    return header + content[size:]


def _shares_folder(run: RunFolder, attempt: int) -> bool:
    """Return whether another run was under way in the folders of this one since it began."""
    study = study_of(run.path)
    own = next(entry for entry in run.entries() if entry["attempt"] == attempt)
    for other in find_runs((study.path if study else run.path).parent):
        try:
            entries = other.entries() if other.path != run.path else []
        except (ConfigError, OSError):
            continue
        for entry in entries:
            folders = [Path(one.get("folder", "/dev/null")) for one in (own, entry)]
            is_within = any(one.is_relative_to(two) for one, two in (folders, folders[::-1]))
            if is_within and entry.get("ended", float("inf")) > own.get("time", 0.0):
                return True
    return False
