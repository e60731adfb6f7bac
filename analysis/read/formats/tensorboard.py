"""TensorBoard event files: scalars only, read without its library.

A file is a chain of records, each with its length and masked CRC-32C checksums, that hold
protocol-buffer messages. The fields that are read are `Event.wall_time` (1), `.step` (2),
`.summary` (5) and, in each `Summary.Value`, `.tag` (1), `.simple_value` (2) and `.tensor` (8) with
one float or double.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.read.columns import Cells
from analysis.read.formats.structured import log_of_cells
from analysis.read.run_log import RunLog
from configs.errors import Unreadable

LARGEST_FILE, LARGEST_RECORD = 1 << 31, 1 << 26
HEAD, FOOT = 12, 4
_POLYNOMIAL = 0x82F63B78
_LENGTH, _DOUBLE, _FLOAT = struct.Struct("<Q"), struct.Struct("<d"), struct.Struct("<f")


def looks_like_events(start: bytes) -> bool:
    """Whether a file begins with the version record that every event file begins with."""
    return b"brain.Event:" in start[:64]


def read_events(path: Path, *, name: str) -> list[RunLog]:
    """Return the run in an event file, up to its first damaged record; `line` counts records."""
    if path.stat().st_size > LARGEST_FILE:
        raise Unreadable(f"{path}: larger than {LARGEST_FILE >> 30} GiB")
    data = path.read_bytes()
    places = list(_records(data))
    sound = _first_damaged(data, places)
    cells, lines = Cells(), list[int]()
    try:
        for number, (start, end) in enumerate(places[:sound], start=1):
            scalars = _scalars(data[start:end])
            if len(scalars) > 2:
                cells.add(len(lines), scalars)
                lines.append(number)
    except (ValueError, IndexError, struct.error):
        raise Unreadable(f"{path}: record {number} is no event") from None
    logs = log_of_cells(cells, lines, path=path, name=name, kind="TensorBoard")
    if sound == len(places):
        return logs
    remark = f"{name}: record {sound + 1} is damaged; the rest of the file is not read"
    return [replace(log, remarks=(remark,)) for log in logs]


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of each whole record's body."""
    at, size = 0, len(data)
    while at + HEAD <= size:
        (length,) = _LENGTH.unpack_from(data, at)
        start, end = at + HEAD, at + HEAD + length
        if length > LARGEST_RECORD or end + FOOT > size:
            return
        yield start, end
        at = end + FOOT


def _first_damaged(data: bytes, places: Sequence[tuple[int, int]]) -> int:
    """Return the index of the first record with a wrong checksum, or the number of records.

    The checksums of all records of one length are computed at once, byte by byte.
    """
    table, raw = np.arange(256, dtype=np.uint32), np.frombuffer(data, dtype=np.uint8)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    bounds = np.array(places, dtype=np.int64).reshape(-1, 2)
    lengths = bounds[:, 1] - bounds[:, 0]
    damaged = len(places)
    for length in np.unique(lengths):
        mine = np.flatnonzero(lengths == length)
        starts = bounds[mine, 0]
        state = np.full(len(mine), 0xFFFFFFFF, dtype=np.uint32)
        for offset in range(int(length)):
            state = table[(state ^ raw[starts + offset]) & 0xFF] ^ (state >> np.uint32(8))
        state ^= np.uint32(0xFFFFFFFF)
        masked = (state >> np.uint32(15) | state << np.uint32(17)) + np.uint32(0xA282EAD8)
        feet = raw[(starts + length)[:, None] + np.arange(FOOT)]
        wrong = np.flatnonzero(feet.view("<u4")[:, 0] != masked)
        damaged = min(damaged, int(mine[wrong[0]])) if len(wrong) else damaged
    return damaged


def _scalars(event: bytes) -> dict[str, float]:
    """Return the `step`, the `time` and the scalars of one event, by tag."""
    found = {"step": 0.0}
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes):
            (found["time"],) = _DOUBLE.unpack(value)
        elif number == 2 and isinstance(value, int):
            found["step"] = float(value)
        elif number == 5 and isinstance(value, bytes):
            for inner, summary in _fields(value):
                if inner == 1 and isinstance(summary, bytes):
                    tag, scalar = _scalar(summary)
                    if tag and scalar is not None and tag not in ("step", "time"):
                        found[tag] = scalar if np.isfinite(scalar) else np.inf
    return found


def _scalar(summary: bytes) -> tuple[str, float | None]:
    """Return the tag and the number of a summary's value."""
    tag, number = "", None
    for field, value in _fields(summary):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif field == 2 and isinstance(value, bytes) and len(value) == 4:
            (number,) = _FLOAT.unpack(value)
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return tag, number


def _tensor(data: bytes) -> float | None:
    """Return the only element of a float (1) or double (2) tensor, else None."""
    kind, content = 0, b""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):
            content = value
    if kind == 1 and len(content) == 4:
        return float(_FLOAT.unpack(content)[0])
    return float(_DOUBLE.unpack(content)[0]) if kind == 2 and len(content) == 8 else None


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the number and value of each field; IndexError or ValueError if it is damaged."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > end:
            raise ValueError("cut short")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place after it."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("varint")
