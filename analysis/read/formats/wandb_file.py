"""Runs of Weights & Biases, offline or sent: `wandb/*run-TIME-ID/run-ID.wandb`.

The file has records of `wandb_internal.proto` in the frames of LevelDB's log, with a plain CRC-32.
They are read without wandb itself.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from analysis.read.evaluations import is_result
from analysis.read.formats.structured import as_numbers, logs_of
from analysis.read.run_log import RunLog
from analysis.read.vocabulary import meaning, preference
from configs.files import open_regular
from configs.load import flatten

_START, _BLOCK, _FRAME = 7, 1 << 15, struct.Struct("<IHB")
_DAMAGED = b"\7"  # of no kind that protobuf has
# Where things are in a record: the numbers of its field, of the field in that, and so on.
_HISTORY, _CONFIG_AT_FIRST, _CONFIG_LATER = (2,), (17, 4), (5,)
_FACTS = {
    "name": (17, 8), "id": (17, 1), "host": (17, 13), "commit": (17, 21, 2), "gpu": (26, 18),
    "gpus": (26, 19), "exit": (18, 1),
}  # fmt: skip


def read_wandb(path: Path, *, name: str, columns: Mapping[str, str]) -> list[RunLog]:
    """Return the run in a file, none if it logged no number; `line` counts records.

    The axis is the trainer's own step, else a `unit`: a call of `log()`.
    """
    rows, odd = list[tuple[int, dict[str, float]]](), list[int]()
    config, facts = dict[str, Any](), dict[str, Any]()
    for number, data in enumerate(_records(path), start=1):
        try:
            record = _fields(data)
            rows.append((number, as_numbers(_values(record, _HISTORY))))
            config |= flatten(_values(record, _CONFIG_AT_FIRST) | _values(record, _CONFIG_LATER))
            for fact, place in _FACTS.items():
                for found in _at(record, place):
                    facts[fact] = found if type(found) is int else found.decode("utf-8", "replace")
        except (DecodeError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
            odd.append(number)
    name = str(facts.get("name") or facts.get("id") or name)
    step = columns.get("step") or _own_step([row for _, row in rows], damaged=len(odd))
    columns = {"step": step or "_step"} | dict(columns)
    remarks = [f"{len(odd)} damaged or cut records not read, first {odd[0]}"] if odd else []
    if not step:
        hint = "--columns step=NAME names it, step=_step says that each call is a step"
        remarks.append(f"its step is not known, only wandb's count of calls of log(); {hint}")
    elif left := sum(not any(map(is_result, row)) for _, row in rows if row and step not in row):
        remarks.append(f"{left} records without {step} not read; --columns step=NAME names another")
    if facts.get("gpus", 1) != 1:
        remarks.append(f"its machine has {facts['gpus']} GPUs; --set gpus=N says how many ran")
    if facts.get("exit"):
        remarks.append(f"it ended with exit code {facts['exit']}")
    machine = {"gpu": facts.get("gpu"), "node": facts.get("host")}
    return [
        replace(
            log,
            axis=log.axis if step else "unit",
            config={own: v for own, v in config.items() if not own.startswith("_wandb")} or None,
            facts={"commit": facts.get("commit"), "placement": [machine]},
            remarks=tuple(f"{name}: {remark}" for remark in remarks),
        )
        for log in logs_of(rows, path=path, name=name, kind="wandb", columns=columns)
    ]


def _own_step(rows: Sequence[Mapping[str, float]], *, damaged: int) -> str | None:
    """Return the name of the trainer's steps; None if it logged none, or if they begin again.

    wandb's own steps have gaps only if they were passed to `log()`: else they count its calls.
    """
    names = {name for row in rows for name in row if meaning(name)[0] == "step"}
    name = min(sorted(names - {"_step"}), key=preference, default="_step")
    pairs = list(pairwise(row[name] for row in rows if name in row))
    if name == "_step":
        return name if sum(after > before + 1 for before, after in pairs) > damaged else None
    return None if any(after < min(before, pairs[0][0] + 1) for before, after in pairs) else name


def _records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file; for a damaged or cut one bytes that are none."""
    place, parts = _START, list[bytes]()
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            while place + _FRAME.size <= len(block):
                code, length, kind = _FRAME.unpack_from(block, place)
                start, place = place + _FRAME.size, place + _FRAME.size + length
                if kind in (1, 2):  # whole, or the first part
                    yield from [_DAMAGED] if parts else []
                    parts = []
                # The checksum is of the kind, too. After a wrong one the rest of the block is lost.
                if zlib.crc32(block[start - 1 : place]) != code:
                    parts = [_DAMAGED]
                    break
                parts.append(block[start:place])
                if kind in (1, 4):  # whole, or the last part
                    yield b"".join(parts)
                    parts = []
            place = 0
    yield from [_DAMAGED] if parts else []


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Return the values of a message of protobuf by the numbers of its fields."""
    found: dict[int, list[Any]] = {}
    for field in UnknownFieldSet(Empty.FromString(message)):
        found.setdefault(field.field_number, []).append(field.data)
    return found


def _at(fields: Mapping[int, list[Any]], place: tuple[int, ...]) -> list[Any]:
    """Return the values at a place in a message."""
    found = fields.get(place[0], [])
    for number in place[1:]:
        found = [value for message in found for value in _fields(message).get(number, [])]
    return found


def _values(record: Mapping[int, list[Any]], place: tuple[int, ...]) -> dict[str, Any]:
    """Return the values of items by name, nested ones as `a.b`, but not those of images."""
    found: dict[str, Any] = {}
    for item in map(_fields, _at(record, (*place, 1))):
        name = b".".join(item.get(2) or item[1]).decode("utf-8", "replace")
        found[name] = json.loads(item[16][0])
    media = tuple(name.removesuffix("_type") for name in found if name.endswith("._type"))
    return {name: value for name, value in found.items() if not name.startswith(media)}
