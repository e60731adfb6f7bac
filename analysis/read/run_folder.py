"""Read run folders of ditbench: config, manifest and records."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from analysis.read.machine import machine
from analysis.read.program import with_program_log
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from configs.errors import ConfigError, Unreadable
from configs.load import flatten
from configs.run.folder import RunFolder
from configs.run.json_files import AttemptEntry
from configs.run.records import Record, is_number, read_records, valid
from configs.schema import KINDS, keys


def read_ours(run: RunFolder) -> RunLog:
    """Return the log of a run folder; raise `Unreadable` if its config or manifest is damaged."""
    lines: dict[int, int] = {}
    records: list[Record] = []
    odd: list[int] = []
    try:
        config = flatten(run.config_tree())
        facts = run.entries()
        if config.get("train.compile") == "auto" and facts:
            config["train.compile"] = facts[-1].get("compile", "auto")  # what ran
        superseded = _superseded(run, facts)
        for number, record in read_records(run.metrics_file, odd=odd):
            lines[id(record)] = number
            records.append(record)
    except (ConfigError, OSError) as error:
        raise Unreadable(str(error)) from None
    current = sorted(valid(records), key=_step_of)
    steps = [record for record in current if _is_step(record)]
    kept = {id(record) for record in steps}
    skipped = f"{run.metrics_file}: {len(odd)} lines are no records and were skipped"
    log = RunLog(
        name=run.name,
        path=run.path,
        format="ditbench",
        step=np.array([record["step"] for record in steps], dtype=np.int64),
        attempt=np.array([record["attempt"] for record in steps], dtype=np.int64),
        line=np.array([lines[id(record)] for record in steps], dtype=np.int64),
        values=_columns(steps),
        config=config,
        facts=dict(facts[-1]) if facts else {},
        events=tuple(record for record in records if "event" in record),
        lost=tuple(r for r in records if _is_step(r) and id(r) not in kept),
        evaluations=tuple(
            record | {"line": lines[id(record)]} for record in current if not _is_step(record)
        ),
        allocated=_allocated(facts),
        attempts=max((record["attempt"] for record in records), default=len(run.attempts())),
        superseded=frozenset(superseded),
        remarks=(
            *((skipped,) if odd else ()),
            *(
                f"{run.name}: attempt {n} is left out of the rate: the last one differs in {names}"
                for n, names in superseded.items()
            ),
        ),
    )
    return with_program_log(run, log) if config.get("kind") == "command" else log


def _superseded(run: RunFolder, facts: list[AttemptEntry]) -> dict[int, str]:
    """Return the attempts that differ from the last one in what affects the clock, and in what."""
    numbers = run.attempts()
    if len(numbers) < 2:
        return {}
    entries = {entry["attempt"]: entry for entry in facts}
    keys_of = {n: _clock_keys(run, n) | machine(entries.get(n, {})) for n in numbers}
    last = keys_of[numbers[-1]]
    found = {}
    for number in numbers[:-1]:
        own = keys_of[number]
        names = [name for name in {**own, **last} if own.get(name) != last.get(name)]
        if names and entries.get(number) and entries.get(numbers[-1]):
            found[number] = ", ".join(names)
    return found


def _clock_keys(run: RunFolder, number: int) -> dict[str, Any]:
    """Return the keys of an attempt's config that affect the clock, but those of resources."""
    config = flatten(run.config_tree(number))
    kind = config.get("kind")
    spec = keys(kind) if isinstance(kind, str) and kind in KINDS else {}
    clock = (name for name, info in spec.items() if "clock" in info.affects)
    return {n: config.get(n) for n in clock if "resources" not in spec[n].affects}


def _is_step(record: Record) -> bool:
    """Whether a record is a training step's, not an event or an evaluation."""
    return "event" not in record and "train_s" in record


def _allocated(facts: list[AttemptEntry]) -> dict[int, tuple[float, float | None]]:
    """Return when the job of each attempt began and ended; None for an end that is not recorded."""
    known = [entry for entry in facts if "began" in entry]
    return {entry["attempt"]: (entry["began"], entry.get("ended")) for entry in known}


def _step_of(record: Record) -> int:
    return int(record["step"])


def _columns(steps: Iterable[Record]) -> dict[str, Floats]:
    """Return every numeric field as a column [n], NaN if a record has none."""
    rows = list(steps)
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "attempt"))
    columns = {
        name: np.array([row[name] if is_number(row.get(name)) else np.nan for row in rows], float)
        for name in names
    }
    return {name: column for name, column in columns.items() if not np.isnan(column).all()}
