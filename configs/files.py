"""Open files that another user may have made: at once, regular files only, of a bounded size."""

import errno
import io
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

# Larger files are refused: of those read whole, and of logs read line by line.
MOST_BYTES, MOST_LOG_BYTES = 2**26, 2**33
# A longer line is cut there.
_LONGEST_LINE = 2**24


def open_regular(
    path: str | Path, *, most: int = MOST_LOG_BYTES, follow_links: bool = True
) -> io.BufferedReader:
    """Open a file for its bytes; raise `OSError` for a pipe, a device or more than `most` bytes.

    Nothing waits for a writer. Without `follow_links` a symbolic link is an error, too.
    """

    def opener(name: str, flags: int) -> int:
        flags |= os.O_NONBLOCK | os.O_NOCTTY | (0 if follow_links else os.O_NOFOLLOW)
        handle = os.open(name, flags)
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_size <= most:
            return handle
        os.close(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if stat.S_ISREG(status.st_mode):
            raise OSError(errno.EFBIG, f"larger than {most >> 20:,} MiB", name)
        raise OSError(errno.EINVAL, "not a regular file, but a pipe or a device", name)

    return open(path, "rb", opener=opener)


def read_bytes(path: str | Path, *, most: int = MOST_BYTES, follow_links: bool = True) -> bytes:
    """Return the bytes of a file as `open_regular` opens it."""
    with open_regular(path, most=most, follow_links=follow_links) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20:,} MiB", str(path))
    return content


def read_text(
    path: str | Path, *, errors: str = "strict", most: int = MOST_BYTES, follow_links: bool = True
) -> str:
    """Return the UTF-8 text of a file as `open_regular` opens it, with LF at every line's end."""
    text = read_bytes(path, most=most, follow_links=follow_links).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a log, which may still grow; bytes that are not UTF-8 are replaced."""
    with io.TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace") as file:
        yield from iter(partial(file.readline, _LONGEST_LINE), "")
