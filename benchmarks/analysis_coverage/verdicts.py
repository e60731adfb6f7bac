"""One form for the answers of all commands: a word, a ratio and its interval for each row.

A row of the contract for judgements has these itself: `word`, `ratio`, `low`, `high`, `unit`,
`verdict`. Figures of one run are mapped to them here.
"""

import contextlib
import io
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

UNDETERMINED, REFUSED, GIVEN, FOUND = "undetermined", "not compared", "given", "found"
# The direction of the ratio that a word claims: 0 is no difference, None any difference.
CLAIMS: Mapping[str, int | None] = {
    "faster": 1, "slower": -1, "better": -1, "worse": 1, "same": 0, "different": None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One row: what it is about, and what it claims.

    `word` is a word of the contract, `given` for a figure without a comparison that has an
    interval, or `found` for a finding of a detector. `is_of_these` says that the row speaks of the
    very runs that it was given, not of their recipes.
    """

    name: str
    word: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    is_of_these: bool = False

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are known."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command printed: its JSON (None if it printed none), its code and its remarks."""

    payload: Any
    code: int
    remarks: str

    @property
    def is_bug(self) -> bool:
        """Whether the command failed unexpectedly."""
        return "a bug in ditbench" in self.remarks or "Traceback" in self.remarks


def ask(argv: list[str]) -> Answer:
    """Run an analysis command in this process and return its answer in JSON."""
    from analysis.__main__ import main

    out, remarks = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(remarks):
        try:
            code = main([*argv, "--json"])
        except SystemExit as end:  # of argparse
            code = end.code if isinstance(end.code, int) else 2
    return answer(out.getvalue(), code, remarks.getvalue())


def ask_process(argv: list[str]) -> Answer:
    """Run an analysis command in a process of its own and return its answer in JSON."""
    command = [sys.executable, "-m", "analysis", *argv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer(done.stdout, done.returncode, done.stderr)


def answer(output: str, code: int, remarks: str) -> Answer:
    """Return an answer from what a command printed."""
    try:
        payload = json.loads(output) if output.strip() else None
    except ValueError:
        payload, remarks = None, f"{remarks}\na bug in ditbench: its output is not JSON"
    return Answer(payload=payload, code=code, remarks=remarks)


def _rows(payload: Any) -> list[Row]:
    """Return the rows of a table, below whatever key they stand."""
    if isinstance(payload, list):
        return [row for row in payload if isinstance(row, dict)]
    if isinstance(payload, dict):
        lists = [part for part in payload.values() if isinstance(part, list) and part]
        return _rows(lists[0]) if lists else []
    return []


def _name(row: Row) -> str:
    """Return all names and levels of a row, between bars."""
    kinds = ("verdict", "speed", "word", "why", "unit", "clock", "loss_verdict")
    texts = [
        str(value)
        for name, value in row.items()
        if (isinstance(value, str) and name not in kinds) or "." in name or name == "seed"
    ]
    return "|" + "|".join(texts) + "|"


def judged(row: Row, *, prefix: str = "") -> Judgement:
    """Return the judgement of a row, whose fields may have a prefix."""
    sentence = str(row.get(f"{prefix}verdict") or "")
    return Judgement(
        name=_name(row),
        word=str(row.get(f"{prefix}word", UNDETERMINED)),
        ratio=row.get(f"{prefix}ratio"),
        low=row.get(f"{prefix}low"),
        high=row.get(f"{prefix}high"),
        is_of_these="these two runs" in sentence or "these runs" in sentence,
    )


def _rate(payload: Any) -> Iterator[Judgement]:
    """Read the rate of the first run."""
    for row in _rows(payload)[:1]:
        for name in ("steps_per_s", "units_per_s"):
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            if low is not None and high is not None:
                yield Judgement(
                    name=_name(row), word=GIVEN, ratio=row.get(name), low=low, high=high
                )
                return
        yield Judgement(name=_name(row), word=UNDETERMINED)


def _against_first(prefix: str = "") -> Callable[[Any], Iterator[Judgement]]:
    """Return a reader of a table whose first row is the baseline."""

    def read(payload: Any) -> Iterator[Judgement]:
        for row in _rows(payload)[1:]:
            yield judged(row, prefix=prefix)

    return read


def _every(**fields: str) -> Callable[[Any], Iterator[Judgement]]:
    """Return a reader of all rows that have such fields, or none of these."""

    def read(payload: Any) -> Iterator[Judgement]:
        for row in _rows(payload):
            if all(row.get(name, value) == value for name, value in fields.items()):
                yield judged(row)

    return read


def _figure(name: str) -> Callable[[Any], Iterator[Judgement]]:
    """Return a reader of one figure with its interval."""

    def read(payload: Any) -> Iterator[Judgement]:
        rows = [payload] if isinstance(payload, dict) and name in payload else _rows(payload)
        for row in rows[:1]:
            low = row.get(f"{name}_low", row.get("low"))
            high = row.get(f"{name}_high", row.get("high"))
            is_given = row.get(name) is not None and low is not None
            yield Judgement(
                name=name,
                word=GIVEN if is_given else UNDETERMINED,
                ratio=row.get(name),
                low=low if is_given else None,
                high=(math.inf if high is None else high) if is_given else None,
            )

    return read


def _findings(payload: Any) -> Iterator[Judgement]:
    for row in _rows(payload):
        if (kind := row.get("finding")) != "resumed":
            yield Judgement(name=f"|{kind}|", word=FOUND)


READERS: Mapping[str, Callable[[Any], Iterator[Judgement]]] = {
    "rate": _rate,
    "speed": _against_first(),
    "loss": _every(),
    "cells speed": _against_first(),
    "cells loss": _against_first("loss_"),
    "decided rate": _every(quantity="rate"),
    "decided loss": _every(quantity="loss"),
    "fid": _every(quantity="FID"),
    "target": _against_first(),
    "effects": _every(),
    "critical batch": _figure("b_crit"),
    "noise": _figure("b_simple"),
    "findings": _findings,
}


def judgements(kind: str, found: Answer) -> list[Judgement]:
    """Return the judgements in an answer; none if the command refused."""
    return [] if found.payload is None else list(READERS[kind](found.payload))
