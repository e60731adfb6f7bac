"""The records of a run, `metrics.jsonl`: one JSON object per line, append-only.

A line is an event (`event`), a training step (`step images loss ...`) or an evaluation
(`step images` and the results); each has `time` (seconds since 1970) and `attempt`.
Values that are missing or not finite are left out.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Required, TypeGuard

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from configs.files import read_lines
from runs.json_files import STRICT
from runs.state.reasons import failures

Record = dict[str, Any]
_Count = Annotated[int, Field(ge=0, lt=2**53)]

EVENTS = (
    "queued", "started", "tuned", "checked", "saved", "evaluated",
    "paused", "stopped", "done", "failed", "skipped",
)  # fmt: skip


class _Line(TypedDict, total=False):
    """The fields of a record on which every reader relies."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    time: Required[Annotated[float, Field(gt=-1e300, lt=1e300)]]
    attempt: Required[_Count]
    event: str
    reason: str
    step: _Count


_LINE: TypeAdapter[Any] = TypeAdapter(_Line)


class Superseded(Exception):
    """A newer attempt at this run has begun, so this one must not write any more."""


class RecordWriter:
    """Append the records of one attempt, each line in a single write."""

    def __init__(self, run: Path, *, attempt: int) -> None:
        self._attempts = run / "attempts"
        self.attempt = attempt
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(run / "metrics.jsonl", flags, 0o600)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def write(self, **fields: Any) -> Record:
        """Append one record and return it; raise `Superseded` if a newer attempt exists."""
        if (self._attempts / f"{self.attempt + 1:03d}").exists():
            raise Superseded(f"attempt {self.attempt + 1} has begun")
        record: Record = {"time": round(time.time(), 6), "attempt": self.attempt}
        for name, value in fields.items():
            if value is not None and not (isinstance(value, float) and not math.isfinite(value)):
                record[name] = value
        line = json.dumps(record, allow_nan=False) + "\n"
        os.write(self._file, line.encode())
        return record

    def event(self, name: str, **fields: Any) -> Record:
        """Append an event and force it to disk; return its record."""
        assert name in EVENTS, name
        assert name != "failed" or fields.get("reason") in failures(), fields
        record = self.write(event=name, **fields)
        os.fsync(self._file)
        return record

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_records(path: Path, *, odd: list[int] | None = None) -> Iterator[tuple[int, Record]]:
    """Yield (line number, record) of a file; skip lines that hold none, and list them in `odd`.

    A last line without an end is still being written: it is never odd.
    """
    with suppress(FileNotFoundError):
        for number, line in enumerate(read_lines(path), start=1):
            try:
                yield number, _LINE.validate_json(line)
            except ValidationError:
                if odd is not None and line.endswith("\n"):
                    odd.append(number)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a finite number, and no bool, that floats can count with."""
    return type(value) in (int, float) and abs(value) < 1e300


def starts(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events with which the ranks of attempts began."""
    return _events(records, "started")


def saves(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events of saves."""
    return _events(records, "saved")


def submissions(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events with which jobs for the run were queued."""
    return _events(records, "queued")


def ends(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events with which attempts ended."""
    return _events(records, "paused", "stopped", "done", "failed")


def _events(records: Iterable[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
    return [record for record in records if record.get("event") in names]


def valid(records: Iterable[Record]) -> list[Record]:
    """Return the steps and evaluations that count, without those that a resume repeated.

    An attempt starts at the step of its `started` event. Records of older attempts beyond that
    step belong to lost work.
    """
    kept: dict[tuple[int, frozenset[str]], Record] = {}
    for record in records:
        if record.get("event") == "started" and "step" in record:
            kept = {key: old for key, old in kept.items() if key[0] <= record["step"]}
        elif "event" not in record and isinstance(record.get("step"), int):
            # A step is sampled several times, for example with other scales of guidance.
            names = ["loss"] if "loss" in record else [*record, str(record.get("fid_facts"))]
            kept[record["step"], frozenset(names)] = record
    return list(kept.values())
