"""Files that are whole or absent: written beside, forced to disk, renamed into place."""

import os
from pathlib import Path

# How the name ends of a file that is being written; a kill leaves it behind.
HALF = ".tmp"


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader, or a crash, sees the old or the new whole file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}{HALF}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, so that a rename in it outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private() -> None:
    """Let only the owner read what is made from here on; `UMASK` opts a group in."""
    os.umask(int(os.environ.get("UMASK", "077"), 8))
