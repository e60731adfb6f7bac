"""Reads the run folders of this suite: config, manifest and records."""

import math
from collections.abc import Iterable
from typing import Any, TypeGuard

import numpy as np

from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from configs.errors import ConfigError, Unreadable
from configs.load import flatten
from configs.run.folder import RunFolder
from configs.run.records import Record, read_records, valid
from configs.schema import KINDS, keys

LARGEST_STEP = 2**53


def read_ours(run: RunFolder) -> RunLog:
    """The log of a run folder; `Unreadable` where its config or manifest is damaged."""
    try:
        config = flatten(run.config_tree())
        facts = _facts(run)
        otherwise = _otherwise(run, facts)
    except (ConfigError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    lines: dict[int, int] = {}
    records: list[Record] = []
    number = 0
    for number, record in read_records(run.metrics_file):
        if _is_sound(record):
            lines[id(record)] = number
            records.append(record)
    odd = number - len(records)
    standing = sorted(valid(records), key=_step_of)
    steps = [record for record in standing if _is_step(record)]
    kept = {id(record) for record in steps}
    passed_over = f"{run.metrics_file}: {odd} lines are no records of a run and were passed over"
    return RunLog(
        name=run.name,
        path=run.path,
        format="ditbench",
        step=np.array([record["step"] for record in steps], dtype=np.int64),
        attempt=np.array([record["attempt"] for record in steps], dtype=np.int64),
        line=np.array([lines[id(record)] for record in steps], dtype=np.int64),
        values=_columns(steps),
        config=config,
        facts=facts[-1] if facts else {},
        events=tuple(record for record in records if "event" in record),
        lost=tuple(r for r in records if _is_step(r) and id(r) not in kept),
        evaluations=tuple(
            record | {"line": lines[id(record)]} for record in standing if not _is_step(record)
        ),
        allocated=_allocated(facts),
        attempts=max((record["attempt"] for record in records), default=len(run.attempts())),
        otherwise=frozenset(otherwise),
        remarks=(
            *((passed_over,) if odd else ()),
            *(
                f"{run.name}: attempt {n} ran otherwise ({why}) and is left out of the rate"
                for n, why in otherwise.items()
            ),
        ),
    )


def _otherwise(run: RunFolder, facts: list[dict[str, Any]]) -> dict[int, str]:
    """Attempts unlike the last one in what affects the clock, and in what."""
    numbers = run.attempts()
    if len(numbers) < 2:
        return {}
    told = {entry["attempt"]: entry for entry in facts if type(entry.get("attempt")) is int}
    seen = {n: _clock_keys(run, n) | machine(told.get(n, {})) for n in numbers}
    last = seen[numbers[-1]]
    found = {}
    for number in numbers[:-1]:
        names = [
            name for name in {**seen[number], **last} if seen[number].get(name) != last.get(name)
        ]
        if names and told.get(number) and told.get(numbers[-1]):
            found[number] = ", ".join(names)
    return found


def _clock_keys(run: RunFolder, number: int) -> dict[str, Any]:
    """The keys of an attempt's config that affect the clock and are not only asked for."""
    config = flatten(run.config_tree(number))
    kind = config.get("kind")
    spec = keys(kind) if isinstance(kind, str) and kind in KINDS else {}
    clock = (name for name, info in spec.items() if "clock" in info.affects)
    return {n: config.get(n) for n in clock if "resources" not in spec[n].affects}


def _is_step(record: Record) -> bool:
    """Whether a record is a training step's and not an event or an evaluation."""
    return "event" not in record and "train_s" in record


def _facts(run: RunFolder) -> list[dict[str, Any]]:
    """The manifest's entries, one per attempt."""
    try:
        attempts = run.manifest().get("attempts", [])
    except (ValueError, TypeError, OSError, RecursionError) as error:
        raise Unreadable(f"{run.manifest_file}: not a manifest ({type(error).__name__})") from None
    if not isinstance(attempts, list) or not all(isinstance(entry, dict) for entry in attempts):
        raise Unreadable(f"{run.manifest_file}: not a manifest (no list of attempts)")
    return attempts


def _allocated(facts: list[dict[str, Any]]) -> dict[int, tuple[float, float | None]]:
    """When the job of each attempt began and ended, seconds since 1970; None for an end unseen."""
    found: dict[int, tuple[float, float | None]] = {}
    for entry in facts:
        number, times = entry.get("attempt"), (entry.get("began"), entry.get("ended"))
        began, ended = (float(time) if _is_number(time) else None for time in times)
        if type(number) is int and began is not None:
            found[number] = (began, ended)
    return found


def _is_sound(record: Record) -> bool:
    """Whether a record's time, attempt and step are numbers that can be counted with."""
    step, event = record.get("step", 0), record.get("event", "")
    return (
        _is_number(record.get("time"))
        and type(record.get("attempt")) is int
        and 0 <= record["attempt"] < LARGEST_STEP
        and type(step) is int
        and 0 <= step < LARGEST_STEP
        and isinstance(event, str)
    )


def _is_number(value: Any) -> TypeGuard[int | float]:
    if type(value) not in (int, float):
        return False
    return abs(value) < 1e300 and not math.isnan(value)


def _step_of(record: Record) -> int:
    return int(record["step"])


def _columns(steps: Iterable[Record]) -> dict[str, Floats]:
    """Every numeric field as a column [n], NaN where a record has none."""
    rows = list(steps)
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "attempt"))
    columns = {
        name: np.array([row[name] if _is_number(row.get(name)) else np.nan for row in rows], float)
        for name in names
    }
    return {name: column for name, column in columns.items() if not np.isnan(column).all()}
