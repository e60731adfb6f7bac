"""Read run folders of ditbench: config, manifest and records, or the log of a program."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.read.formats.structured import as_numbers
from analysis.read.machine import gpu, machine, nodes, ranks
from analysis.read.other_logs import read_file
from analysis.read.run_log import CLOCKED, Ints, RunLog, Stay, not_finite
from analysis.stats.intervals import Floats
from configs.errors import ConfigError, Unreadable
from configs.files import read_bytes, read_lines
from configs.load import flatten
from configs.schema import KINDS, keys
from runs.attempt.own_logs import KEPT
from runs.folder import RunFolder
from runs.json_files import AttemptEntry
from runs.records import Record, is_number, read_records, valid

# The time of day may leave the clocks by this and by two records, which may be written late.
JUMP_S = 5.0
# Clocks of a log that tells the time itself.
_CLOCKS = frozenset(["time", "bar_s", "elapsed_s", "train_s", "step_s", "steps_per_s"])
# Facts that a log tells of its steps.
_OF_LOG = ("mean_loss", "always_evaluates", "global_batch_size", "batch_size")


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
        settings = {entry["attempt"]: _settings(run, entry) for entry in facts}
        superseded = _superseded(settings, config.get("kind"))
        for number, record in read_records(run.metrics_file, odd=odd):
            lines[id(record)] = number
            records.append(record)
    except (ConfigError, OSError) as error:
        raise Unreadable(str(error)) from None
    current = sorted(valid(records), key=lambda record: record["step"])
    steps = [record for record in current if _is_step(record)]
    kept = {id(record) for record in steps}
    skipped = f"{run.metrics_file}: {len(odd)} lines are no records and were skipped"
    step = np.array([record["step"] for record in steps], dtype=np.int64)
    line = np.array([lines[id(record)] for record in steps], dtype=np.int64)
    losses = [as_numbers({"loss": record.get("loss")}).get("loss", np.nan) for record in steps]
    lost = not_finite(step, line, np.array(losses, dtype=float))
    at = {record["step"]: record for record in steps}
    events: list[Record] = [record for record in records if "event" in record]
    events += [one | {n: at[one["step"]][n] for n in ("time", "attempt")} for one in lost]
    log = RunLog(
        name=run.name,
        path=run.path,
        format="ditbench",
        step=step,
        attempt=np.array([record["attempt"] for record in steps], dtype=np.int64),
        line=line,
        values=_columns(steps),
        config=config,
        facts=_last_facts(run, facts),
        events=tuple(events),
        lost=tuple(r for r in records if _is_step(r) and id(r) not in kept),
        evaluations=tuple(
            record | {"line": lines[id(record)]} for record in current if not _is_step(record)
        ),
        stays={entry["attempt"]: _stay(entry) for entry in facts},
        turns={entry["attempt"]: entry["turn"] for entry in facts if "turn" in entry},
        attempts=max((record["attempt"] for record in records), default=len(run.attempts())),
        superseded=frozenset(superseded),
        changed=_changed(settings, {record["attempt"] for record in steps}),
        remarks=(
            *((skipped,) if odd else ()),
            *(f"{run.name}: {one['rows']} losses are not finite" for one in lost),
            *(
                f"{run.name}: attempt {n} is left out of the rate: the last one differs in {names}"
                for n, names in superseded.items()
            ),
        ),
    )
    if config.get("kind") == "command":
        return with_program_log(run, log)
    jump = _jump_of_time(log)
    return replace(log, uncertain={"time": jump}) if jump else log


def _jump_of_time(log: RunLog) -> str | None:
    """Return where the time of day leaves the clocks of an attempt: a node's clock was set."""
    time, spent = log.column("time"), np.zeros(len(log))
    for name in CLOCKED:
        spent += np.nan_to_num(log.column(name)) if name != "data_s" else 0.0
    rows = np.flatnonzero(~np.isnan(time))
    is_within = np.diff(log.attempt[rows]) == 0
    passed = np.diff(time[rows])[is_within]
    jumps = passed - np.diff(spent[rows])[is_within]
    if not len(jumps):
        return None
    worst = int(np.argmax(np.abs(jumps)))
    if abs(jumps[worst]) <= JUMP_S + 2 * np.median(np.abs(passed)):
        return None
    step = log.step[rows[1:][is_within][worst]]
    return f"the time of day jumps by {jumps[worst]:,.0f} s at step {step}, unlike the clocks"


def _settings(run: RunFolder, entry: AttemptEntry) -> dict[str, Any]:
    """Return the config and the machine of an attempt."""
    return flatten(run.config_tree(entry["attempt"])) | machine(entry)


def _superseded(settings: Mapping[int, dict[str, Any]], kind: Any) -> dict[int, str]:
    """Return the attempts that differ from the last one in what affects the clock, and in what."""
    spec = keys(kind) if isinstance(kind, str) and kind in KINDS else {}
    found = {}
    for number in sorted(settings)[:-1]:
        own, last = settings[number], settings[max(settings)]
        unlike = [name for name in {**own, **last} if own.get(name) != last.get(name)]
        affects = {name: spec[name].affects if name in spec else {"clock"} for name in unlike}
        names = [n for n in unlike if "clock" in affects[n] and "resources" not in affects[n]]
        if names:
            found[number] = ", ".join(names)
    return found


def _changed(settings: Mapping[int, dict[str, Any]], counted: Iterable[int]) -> dict[str, str]:
    """Return what differed between the attempts whose steps count: `0.1, then 0.2`, by name."""
    each = [settings[number] for number in sorted(counted) if number in settings]
    values = {
        name: list(dict.fromkeys(str(one.get(name)) for one in each))
        for name in dict.fromkeys(name for one in each for name in one)
    }
    return {name: ", then ".join(own) for name, own in values.items() if len(own) > 1}


def _is_step(record: Record) -> bool:
    """Whether a record is a training step's, not an event or an evaluation."""
    return "event" not in record and "train_s" in record


def _last_facts(run: RunFolder, facts: list[AttemptEntry]) -> dict[str, Any]:
    """Return the facts of the last attempt, and a digest of the changes to its commit."""
    if not facts:
        return {}
    patch = run.attempt(facts[-1]["attempt"]) / "code.patch"
    changes = sha256(read_bytes(patch)).hexdigest()[:8] if patch.is_file() else None
    return {**facts[-1], "changes": changes}


def _stay(entry: AttemptEntry) -> Stay:
    return Stay(
        nodes=nodes(entry),
        ranks=ranks(entry),
        gpu=gpu(entry),
        began=entry.get("began"),
        ended=entry.get("ended"),
    )


def _columns(steps: Iterable[Record]) -> dict[str, Floats]:
    """Return every numeric field as a column [n], NaN if a record has none."""
    rows = list(steps)
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "attempt"))
    columns = {
        name: np.array([row[name] if is_number(row.get(name)) else np.nan for row in rows], float)
        for name in names
    }
    return {name: column for name, column in columns.items() if not np.isnan(column).all()}


def with_program_log(run: RunFolder, log: RunLog) -> RunLog:
    """Return the log of a run with the steps that its program printed.

    If it printed no loss, they are those of a log that it wrote and `runs.attempt.own_logs` kept.
    """
    parts, remarks = [], list(log.remarks)
    for number in run.attempts():
        output = run.attempt(number) / "output.log"
        printed = _longest([output], name=run.name, remarks=remarks)
        if printed is None or "loss" not in printed.values:
            kept = sorted((run.attempt(number) / KEPT).rglob("*"))
            printed = _longest(kept, name=run.name, remarks=remarks, wanted="loss") or printed
        if printed is not None:
            parts.append(_of_attempt(printed, number))
            said = (remark for remark in printed.remarks if "step" in remark)
            # A log of wandb has the name that wandb gave.
            remarks += [r.replace(f"{printed.name}: ", f"{run.name}: ", 1) for r in said]
    if not parts:
        where = f"{run.path}/attempts/*/output.log, nor in {KEPT} beside it"
        hint = "docs/own-script.md says how to make it readable"
        return replace(log, remarks=(*remarks, f"{run.name}: no step in {where}; {hint}"))
    return replace(_joined(parts, log), remarks=tuple(dict.fromkeys(remarks)))


def _longest(
    paths: Iterable[Path], *, name: str, remarks: list[str], wanted: str = "step"
) -> RunLog | None:
    """Return the longest log in some files that has a step, or a loss; say what is passed over."""
    found: list[RunLog] = []
    for path in paths:
        if path.is_file() and path.stat().st_size:
            try:
                found += read_file(path, name=name)
            except Unreadable as error:
                remarks.append(str(error))
    suitable = [part for part in found if len(part) and wanted in ("step", *part.values)]
    best = max(suitable, key=len, default=None)
    if best is not None and suitable[1:]:
        remarks.append(f"{name}: {len(suitable)} runs in its logs; read the longest, {best.path}")
    return best


def _of_attempt(part: RunLog, number: int) -> RunLog:
    """Return the log of one attempt, with the times of its lines if it tells no time."""
    values, evaluations = dict(part.values), part.evaluations
    arrivals = part.path.with_name("arrivals.txt")
    if _CLOCKS.isdisjoint(values) and arrivals.is_file():
        values["time"] = _times(part.path, arrivals, part.line)
        at = dict(zip(part.step.tolist(), values["time"].tolist(), strict=True))
        evaluations = tuple({"time": at[one["step"]], **one} for one in evaluations)
    attempt = np.full(len(part), number)
    return replace(part, attempt=attempt, values=values, evaluations=evaluations)


def _times(path: Path, arrivals: Path, line: Ints) -> Floats:
    """Return when each line [n] of a log was complete, in seconds since 1970."""
    try:
        size, time = np.loadtxt(read_lines(arrivals), ndmin=2).T
    except ValueError:
        raise Unreadable(f"{arrivals}: not pairs of a length and a time") from None
    text = np.frombuffer(read_bytes(path, most=2**31), dtype=np.uint8)
    ends = np.append(np.flatnonzero(text == 10) + 1, len(text))
    piece = np.searchsorted(size, ends[np.minimum(line, len(ends)) - 1])
    return np.append(time, np.nan)[np.minimum(piece, len(time))]


def _joined(parts: list[RunLog], log: RunLog) -> RunLog:
    """Return the rows of all attempts; one that resumes supersedes the later steps before it."""
    kept: list[tuple[RunLog, NDArray[np.bool_]]] = []
    events, first = [*log.events], np.inf
    for part in reversed(parts):
        rows = part.step < first
        events += [event for event in part.events if event["step"] < first]
        kept.insert(0, (part, rows))
        first = min(first, part.step[0]) if len(part) else first
    names = dict.fromkeys(name for part in parts for name in part.values)
    return replace(
        log,
        source=parts[-1].path,
        format=parts[-1].format,
        axis=parts[-1].axis,
        events=tuple(events),
        step=np.concatenate([part.step[rows] for part, rows in kept]),
        attempt=np.concatenate([part.attempt[rows] for part, rows in kept]),
        line=np.concatenate([part.line[rows] for part, rows in kept]),
        values={n: np.concatenate([part.column(n)[rows] for part, rows in kept]) for n in names},
        evaluations=tuple(entry for part, _ in kept for entry in part.evaluations),
        uncertain={of: why for part in parts for of, why in part.uncertain.items()},
        facts={name: parts[-1].facts[name] for name in _OF_LOG if name in parts[-1].facts}
        | dict(log.facts),
    )
