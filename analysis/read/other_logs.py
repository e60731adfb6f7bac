"""Read files of other trainers, by what they contain and not by how they are named."""

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from analysis.read.formats.ai_toolkit import DATABASE, is_sample, read_database, read_samples
from analysis.read.formats.structured import delimiter_of, read_csv, read_json
from analysis.read.formats.tensorboard import looks_like_events, read_events
from analysis.read.formats.text import read_text
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes
from configs.errors import Unreadable

PEEK = 1 << 14
SKIPPED = frozenset([".git", ".code", ".venv", "__pycache__", "node_modules", ".ipynb_checkpoints"])


def walk(folder: Path, *, without: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """The regular files under a folder in the order of their names; links are not followed."""
    for here, folders, files in os.walk(folder):
        kept = (name for name in folders if name not in SKIPPED)
        folders[:] = sorted(name for name in kept if (Path(here) / name).resolve() not in without)
        for name in sorted(files):
            path = Path(here) / name
            if path.is_file() and not path.is_symlink():
                yield path


@dataclass(frozen=True, kw_only=True)
class ReadLogs:
    """What was read: the runs, and (name, why) of what could not be."""

    logs: tuple[RunLog, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


def gather(parts: Iterable[ReadLogs]) -> ReadLogs:
    """Several findings as one."""
    listed = list(parts)
    return ReadLogs(
        logs=tuple(log for part in listed for log in part.logs),
        unread=tuple(pair for part in listed for pair in part.unread),
    )


def read_folder(folder: Path, *, without: Iterable[Path] = ()) -> ReadLogs:
    """Every foreign run under a folder; the folders `without` (our own runs') are passed over."""
    parts, samples = [], dict[Path, list[Path]]()
    for path in walk(folder, without=frozenset(without)):
        if is_sample(path):
            samples.setdefault(path.parent, []).append(path)
        else:
            parts.append(read_one(path, name=_name(path, folder)))
    for parent, paths in samples.items():
        logs = read_samples(paths, folder=parent, name=_name(parent, folder))
        parts.append(ReadLogs(logs=tuple(logs)))
    return gather(parts)


def read_one(path: Path, *, name: str) -> ReadLogs:
    """The runs in one file, or why it cannot be read."""
    try:
        return ReadLogs(logs=tuple(read_file(path, name=name)))
    except Unreadable as error:
        return ReadLogs(unread=((name, str(error)),))


def _name(path: Path, folder: Path) -> str:
    return str(Path(folder.resolve().name) / path.relative_to(folder))


def read_file(path: Path, *, name: str) -> list[RunLog]:
    """The runs in one file; none where it is no log. `Unreadable` where a known one is damaged."""
    with named(path):
        with open_bytes(path) as file:
            start = file.read(PEEK)
        return _read(path, start, name=name)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name the file whose bytes cannot be had: no permission, a damaged gzip."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"{path}: cannot be read ({error})") from None


def _read(path: Path, start: bytes, *, name: str) -> list[RunLog]:
    if start.startswith(DATABASE):
        return read_database(path, name=name)
    if looks_like_events(start):
        return read_events(path, name=name)
    if _is_binary(start):
        return []
    if start.lstrip()[:1] in (b"{", b"[") and (logs := read_json(path, name=name)):
        return logs
    if delimiter := delimiter_of(start):
        return read_csv(path, name=name, delimiter=delimiter)
    return read_text(path, name=name)


def is_text(path: Path) -> bool:
    """Whether a file is a text whose lines a ledger can be kept of; `Unreadable` where damaged."""
    with named(path), open_bytes(path) as file:
        start = file.read(PEEK)
    return not _is_binary(start) and not delimiter_of(start) and start.lstrip()[:1] != b"{"


def _is_binary(start: bytes) -> bool:
    """Weights, images, pickles: more than a few bytes that no text has."""
    if not start:
        return True
    odd = start.translate(None, delete=bytes(range(32, 256)) + b"\t\n\r\x1b\x08\x0c")
    return len(odd) > len(start) // 200 + 1
