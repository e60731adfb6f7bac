"""Read files of other trainers, by what they contain and not by how they are named."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.read.formats.csv_file import delimiter_of, read_csv
from analysis.read.formats.json_file import read_json
from analysis.read.formats.mlperf import is_mlperf, read_mlperf
from analysis.read.formats.tensorboard import looks_like_events, read_events
from analysis.read.options import ReadOptions, options_for
from analysis.read.run_log import RunLog
from analysis.read.text.kinds import read_kinds
from analysis.read.text.pieces import open_bytes, pieces
from analysis.read.text.read import read_text
from analysis.read.text.teach import unread_text
from configs.errors import Unreadable

PEEK = 1 << 14
WANDB = b":W&B"
_NAME_THEM = "name its columns with --columns step=...,loss=..."


def read_file(path: Path, *, name: str) -> list[RunLog]:
    """Return the runs in one file; raise `Unreadable` if one of a known format is damaged."""
    with named(path):
        options = options_for(path)
        with open_bytes(path) as file:
            start = file.read(PEEK)
        return [options.with_facts(log) for log in _read(path, start, options, name=name)]


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name the file whose bytes cannot be read, for one without a permission."""
    try:
        yield
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error})") from None


def _read(path: Path, start: bytes, options: ReadOptions, *, name: str) -> list[RunLog]:
    if start.startswith(WANDB):
        # Imported here, because few folders hold such a file.
        from analysis.read.formats.wandb_file import read_wandb

        return read_wandb(path, name=name, columns=options.columns)
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
    if is_mlperf(path):
        return read_mlperf(path, name=name)
    return read_text(path, name=name, pattern=options.pattern)


def is_binary(start: bytes) -> bool:
    """Whether a file's first bytes are not text: weights, images, pickles."""
    # A file that was cut while it was written to begins with zeros.
    start = start.lstrip(b"\0")
    # A shell of Windows that appends to a text writes UTF-16.
    if not start or 2 * start.count(0) > len(start):
        return True
    odd = start.translate(None, delete=bytes(range(32, 256)) + b"\0\t\n\r\x1b\x08\x0c")
    return len(odd) > len(start) // 200 + 1


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
    if start.startswith(b"\x1f\x8b"):
        return "a gzip file: unpack it with `gunzip`"
    if looks_like_events(start):
        return "TensorBoard events without a scalar"
    if start.startswith(WANDB):
        return "a file of wandb without a step that is known"
    if is_binary(start):
        return "neither text nor a known binary format"
    head = start.partition(b"\n")[0].decode("utf-8", "replace")[:120].strip()
    if re.match(rb"\s*(?:\{\s*[\"}]|\[\s*[\[{\"\]])", start):
        keys = dict.fromkeys(re.findall(r'"([^"]{1,40})"\s*:', start.decode("utf-8", "replace")))
        if keys:
            return f"JSON with keys {', '.join(list(keys)[:8])}: {_NAME_THEM}"
    if delimiter_of(start) is not None:
        return f"a table with columns {head}: {_NAME_THEM}"
    return unread_text(read_kinds(pieces(path)).kinds)
