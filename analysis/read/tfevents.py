"""TensorBoard event files, read from the protocol buffer's wire format: scalars only.

A file is a chain of records (length, checksum, an `Event`, checksum); the fields that are read
are `Event.wall_time` (1), `.step` (2), `.summary` (5) and, in each `Summary.Value`, `.tag` (1),
`.simple_value` (2) and `.tensor` (8) with one float or double.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from analysis.read.columns import from_rows
from analysis.read.log import RunLog

LARGEST_RECORD = 1 << 26
_DOUBLE, _FLOAT, _LENGTH = struct.Struct("<d"), struct.Struct("<f"), struct.Struct("<Q")
Scalar = tuple[str, float]


def looks_like_events(start: bytes) -> bool:
    """Whether a file begins with the version record that every event file begins with."""
    return b"brain.Event:" in start[:64]


def read_events(path: Path, *, name: str) -> list[RunLog]:
    """The run in an event file; `line` counts records. What follows a damaged record is left."""
    rows = []
    for number, record in enumerate(_records(path), start=1):
        try:
            time, step, scalars = _event(record)
        except (ValueError, IndexError, struct.error):
            break
        if scalars:
            rows.append((number, {"step": float(step), "time": time} | dict(scalars)))
    return from_rows(rows, path=path, name=name, kind="TensorBoard")


def _records(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            (length,) = _LENGTH.unpack_from(head)
            if length > LARGEST_RECORD:
                return
            body = file.read(length + 4)
            if len(body) < length + 4:
                return
            yield body[:length]


def _event(data: bytes) -> tuple[float, int, list[Scalar]]:
    time, step, scalars = 0.0, 0, []
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            (time,) = _DOUBLE.unpack(value)
        elif field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            scalars = [s for number, v in _fields(value) if number == 1 for s in _scalar(v)]
    return time, step, scalars


def _scalar(value: bytes | int) -> list[Scalar]:
    tag, number = "", None
    if isinstance(value, int):
        return []
    for field, inner in _fields(value):
        if field == 1 and isinstance(inner, bytes):
            tag = inner.decode("utf-8", "replace")
        elif field == 2 and isinstance(inner, bytes):
            (number,) = _FLOAT.unpack(inner)
        elif field == 8 and isinstance(inner, bytes):
            number = _tensor(inner)
    return [(tag, number)] if tag and number is not None else []


def _tensor(data: bytes) -> float | None:
    """The only element of a float (1) or double (2) tensor, else None."""
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
    """The (number, value) pairs of one message; IndexError or ValueError where it is damaged."""
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
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint")
