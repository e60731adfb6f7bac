"""TensorBoard event files: scalars only.

The fields that are read are `Event.wall_time` (1), `.step` (2), `.summary` (5) and, in each
`Summary.Value`, `.tag` (1), `.simple_value` (2) and `.tensor` (8) with one float or double. Events
of one tag are alike but for their step, time and value, so the rest is parsed once.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analysis.read.columns import Series, from_series
from analysis.read.formats.wire import fields, first_damaged, records, varint
from analysis.read.run_log import RunLog
from configs.errors import Unreadable

LARGEST_FILE = 1 << 31
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A


@dataclass(kw_only=True)
class _Tag:
    """What was told under one tag, value by value."""

    steps: list[int] = field(default_factory=list)
    times: list[bytes] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    records: list[int] = field(default_factory=list)


def looks_like_events(start: bytes) -> bool:
    """Whether a file begins with the version record that every event file begins with."""
    return b"brain.Event:" in start[:64]


def read_events(path: Path, *, name: str) -> list[RunLog]:
    """The run in an event file; `line` counts records. What follows a damaged record is left."""
    if path.stat().st_size > LARGEST_FILE:
        raise Unreadable(f"{path}: larger than {LARGEST_FILE >> 30} GiB")
    data = path.read_bytes()
    places = list(records(data))
    sound = first_damaged(data, places)
    tags: dict[str, _Tag] = {}
    heads: dict[bytes, str] = {}
    try:
        for number, (start, end) in enumerate(places[:sound], start=1):
            _read(data[start:end], number, tags, heads)
    except (ValueError, IndexError, struct.error):
        raise Unreadable(f"{path}: record {number} is no event") from None
    series = {
        tag: Series(
            step=np.array(told.steps, dtype=np.uint64).astype(np.int64),
            line=np.array(told.records, dtype=np.int64),
            value=np.array(told.values, dtype=np.float64),
            time=np.frombuffer(b"".join(told.times), dtype="<f8"),
        )
        for tag, told in tags.items()
    }
    cut = sound < len(places)
    remark = (f"{name}: record {sound + 1} is damaged; what follows is left",) if cut else ()
    return from_series(series, path=path, name=name, kind="TensorBoard", remarks=remark)


def _read(body: bytes, number: int, tags: dict[str, _Tag], heads: dict[bytes, str]) -> None:
    """One event; its summary's head, up to a float at its end, names a tag that is known."""
    step, at = (0, 9)
    if len(body) < 10 or body[0] != _TIME:
        return
    if body[9] == _STEP:
        step, at = varint(body, 10)
    if at >= len(body) or body[at] != _SUMMARY:
        return
    tag = heads.get(body[at:-4])
    if tag is not None:
        _tell(tags, tag, number, step, body, _FLOAT.unpack_from(body, len(body) - 4)[0])
        return
    _, inside = varint(body, at + 1)
    for field_number, _, value in fields(body[inside:]):
        if field_number == 1 and isinstance(value, bytes):
            named, seen, last = _scalar(value)
            if named and seen is not None:
                _tell(tags, named, number, step, body, seen)
                if (
                    last
                    and inside + 1 < len(body)
                    and body.endswith(value)
                    and _is_only(body, inside)
                ):
                    heads[body[at:-4]] = named


def _is_only(body: bytes, inside: int) -> bool:
    """Whether a summary holds one value and nothing else."""
    return sum(1 for _ in fields(body[inside:])) == 1


def _tell(
    tags: dict[str, _Tag], tag: str, number: int, step: int, body: bytes, value: float
) -> None:
    told = tags.setdefault(tag, _Tag())
    told.steps.append(step)
    told.times.append(body[1:9])
    told.values.append(value)
    told.records.append(number)


def _scalar(data: bytes) -> tuple[str, float | None, bool]:
    """Tag and number of a value, and whether the number is a plain float at its very end."""
    tag, number, last = "", None, False
    for field_number, place, inner in fields(data):
        if field_number == 1 and isinstance(inner, bytes):
            tag = inner.decode("utf-8", "replace")
        elif field_number == 2 and isinstance(inner, bytes) and len(inner) == 4:
            (number,) = _FLOAT.unpack(inner)
            last = place + 4 == len(data)
        elif field_number == 8 and isinstance(inner, bytes):
            number = _tensor(inner)
    return tag, number, last


def _tensor(data: bytes) -> float | None:
    """The only element of a float (1) or double (2) tensor, else None."""
    kind, content = 0, b""
    for field_number, _, value in fields(data):
        if field_number == 1 and isinstance(value, int):
            kind = value
        elif field_number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    if kind == 1 and len(content) == 4:
        return float(_FLOAT.unpack(content)[0])
    return float(_DOUBLE.unpack(content)[0]) if kind == 2 and len(content) == 8 else None
