"""Read files of other trainers, by what they contain and not by how they are named."""

import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.read.exit_causes import exit_causes, root_cause
from analysis.read.formats.ai_toolkit import DATABASE, is_sample, read_database, read_samples
from analysis.read.formats.structured import delimiter_of, read_csv, read_json
from analysis.read.formats.tensorboard import looks_like_events, read_events
from analysis.read.formats.text import read_text
from analysis.read.options import ReadOptions, options_for
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes
from configs.errors import Unreadable

PEEK = 1 << 14
IMAGES = (b"\x89PNG", b"\xff\xd8\xff\xe0", b"\xff\xd8\xff\xe1", b"RIFF", b"GIF8")
# Files that should hold a run; a folder's other files are skipped without a remark.
LOG_SUFFIXES = frozenset(["", ".log", ".txt", ".out", ".err", ".csv", ".tsv", ".jsonl"])
_NAME_THEM = "name its columns with --columns step=...,loss=..."
SKIPPED = frozenset([".git", ".code", ".venv", "__pycache__", "node_modules", ".ipynb_checkpoints"])


def walk(folder: Path, *, without: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the regular files under a folder in the order of their names, but no links."""
    for here, folders, files in os.walk(folder):
        kept = (name for name in folders if name not in SKIPPED)
        folders[:] = sorted(name for name in kept if (Path(here) / name).resolve() not in without)
        for name in sorted(files):
            path = Path(here) / name
            if path.is_file() and not path.is_symlink():
                yield path


@dataclass(frozen=True, kw_only=True)
class ReadLogs:
    """The runs that were read, and (name, reason) of what could not be."""

    logs: tuple[RunLog, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


def gather(parts: Iterable[ReadLogs]) -> ReadLogs:
    """Return several results as one."""
    listed = list(parts)
    return ReadLogs(
        logs=tuple(log for part in listed for log in part.logs),
        unread=tuple(pair for part in listed for pair in part.unread),
    )


def read_folder(folder: Path, *, without: Iterable[Path] = ()) -> ReadLogs:
    """Read every foreign run under a folder, but not in the folders `without` (run folders).

    A remark on the first run counts the text files that hold none.
    """
    parts, samples, empty = [], dict[Path, list[Path]](), list[Path]()
    for path in walk(folder, without=frozenset(without)):
        if is_sample(path):
            samples.setdefault(path.parent, []).append(path)
            continue
        part = read_one(path, name=_name(path, folder))
        parts.append(part)
        if path.suffix in LOG_SUFFIXES and not part.logs and not part.unread:
            empty.append(path)
    for parent, paths in samples.items():
        logs = read_samples(paths, folder=parent, name=_name(parent, folder))
        parts.append(ReadLogs(logs=tuple(logs)))
    found = gather(parts)
    if not empty or not found.logs:
        return found
    files = len({log.path for log in found.logs})
    kinds = Counter(what_is(path).partition(":")[0].partition(" of ")[0] for path in empty)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    remark = f"{folder}: {files} files read, {len(empty)} not: {listed} (the first is {empty[0]})"
    first, *others = found.logs
    first = replace(first, remarks=(*first.remarks, remark))
    return replace(found, logs=(first, *others))


def read_one(path: Path, *, name: str) -> ReadLogs:
    """Read the runs in one file, or say why it cannot be read."""
    try:
        return ReadLogs(logs=tuple(read_file(path, name=name)))
    except Unreadable as error:
        return ReadLogs(unread=((name, str(error)),))


def _name(path: Path, folder: Path) -> str:
    return str(Path(folder.resolve().name) / path.relative_to(folder))


def read_file(path: Path, *, name: str) -> list[RunLog]:
    """Return the runs in one file; raise `Unreadable` if one of a known format is damaged."""
    with named(path):
        options = options_for(path)
        with open_bytes(path) as file:
            start = file.read(PEEK)
        return [options.with_facts(log) for log in _read(path, start, options, name=name)]


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name the file whose bytes cannot be read: no permission, a damaged gzip."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"{path}: cannot be read ({error})") from None


def _read(path: Path, start: bytes, options: ReadOptions, *, name: str) -> list[RunLog]:
    if start.startswith(DATABASE):
        return read_database(path, name=name)
    if looks_like_events(start):
        return read_events(path, name=name)
    if is_binary(start):
        return []
    if not options.pattern:
        if start.lstrip()[:1] in (b"{", b"["):
            logs = read_json(path, name=name, columns=options.columns)
            if logs is not None:
                return logs
        if delimiter := delimiter_of(start, options.columns):
            return read_csv(path, name=name, delimiter=delimiter, columns=options.columns)
    return read_text(path, name=name, own=options.formats)


def is_binary(start: bytes) -> bool:
    """Whether a file's first bytes are not text: weights, images, pickles."""
    if not start:
        return True
    odd = start.translate(None, delete=bytes(range(32, 256)) + b"\t\n\r\x1b\x08\x0c")
    return len(odd) > len(start) // 200 + 1


def _is_table(start: bytes) -> bool:
    """Whether the first lines have as many cells as each other, and the first only short names."""
    lines = start.decode("utf-8", "replace").splitlines()[:4]
    for sign in ",\t;":
        cells = lines[0].split(sign)
        counts = {line.count(sign) for line in lines}
        if len(cells) > 2 and len(counts) == 1 and max(map(len, cells)) < 40:
            return True
    return False


def what_is(path: Path) -> str:
    """Return what a file without a run is, and the option that may help."""
    try:
        with named(path), open_bytes(path) as file:
            start = file.read(PEEK)
    except Unreadable as error:
        return str(error)
    if not start.strip():
        return "an empty file"
    if start.startswith(b"version https://git-lfs"):
        return "a git-LFS pointer: the file itself is not here; run `git lfs pull`"
    if looks_like_events(start):
        return "TensorBoard events without a scalar"
    if is_binary(start):
        return "an image" if start[:4] in IMAGES else "neither text nor a known binary format"
    head = start.partition(b"\n")[0].decode("utf-8", "replace")[:120].strip()
    if start.lstrip()[:1] in (b"{", b"["):
        keys = dict.fromkeys(re.findall(r'"([^"]{1,40})"\s*:', start.decode("utf-8", "replace")))
        return f"JSON with keys {', '.join(list(keys)[:8])}: {_NAME_THEM}"
    if {"Name", "State"} <= set(head.replace('"', "").split(",")):
        return "a W&B table of final values: it has a row per run and no curve; export the chart"
    if _is_table(start):
        return f"a table with columns {head}: {_NAME_THEM}"
    if cause := root_cause(exit_causes(path)):
        reason = cause.reason or cause.event
        return f"text without a training step: line {cause.line} says how it ended ({reason})"
    numbered = (line for line in start.splitlines() if re.search(rb"\d", line))
    line = next(numbered, b"").decode("utf-8", "replace")[:120].strip()
    return (
        f"text of an unknown format; the first line with a number is {line!r}: give its "
        "pattern with --pattern 'step (?P<step>\\d+).*?loss (?P<loss>\\S+)'"
    )
