"""Turn rows into run logs: tell ranks, bars, epochs, attempts and runs apart."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read.columns import Rows
from analysis.read.exit_causes import ExitCause, exit_causes, root_cause
from analysis.read.run_log import Ints, RunLog
from analysis.stats.intervals import Floats

# Columns that say where a row stands, not what it measures.
_PLACES = frozenset(["step", "line", "place", "rank", "group", "record", "of"])
# A bar cuts its time to whole seconds: its end is up to twice as much later than it says.
CUT_S = 0.5
_EVALUATION = re.compile(r"(?i)(?:^|[/_. ])(?:e?val|valid|validation|test)(?:[/_. ]|$)|accuracy")
SAME_MOMENT_S = 5.0
DISPLACED = 3


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Rows with a `step`, what a step is (`RunLog.axis`), and evaluations that are no rows."""

    rows: Rows
    axis: str = "step"
    remarks: Sequence[str] = ()
    evaluations: tuple[Mapping[str, float], ...] = ()


def one_rank(rows: Rows) -> tuple[Rows, list[str]]:
    """Return the rows of the lowest rank if several print the same, and a remark on it."""
    rank = rows["rank"]
    named = np.unique(rank[~np.isnan(rank)])
    if len(named) < 2:
        return rows, []
    with_loss = [one for one in named if not np.isnan(rows["loss"][rank == one]).all()]
    first = min(with_loss or named)
    remark = f"{len(named)} ranks print; rank {int(first)} is read"
    return rows.take((rank == first) | np.isnan(rank)), [remark]


def main_group(rows: Rows) -> Rows:
    """Return the training's bar: the one with the most steps, among those with losses if any."""
    if "group" not in rows or (rows["group"] == rows["group"][0]).all():
        return rows
    trained = np.unique(rows["group"][~np.isnan(rows["loss"])])
    groups = trained if len(trained) else np.unique(rows["group"])
    best = max(groups, key=lambda g: (len(np.unique(rows["step"][rows["group"] == g])), g))
    return rows.take(rows["group"] == best)


def through_epochs(rows: Rows) -> Rows:
    """Let steps and clock go on in rows whose steps are counted anew in every epoch.

    Steps that restart under a later epoch, or a bar that restarts after its end, are the next
    epoch's. A bar that restarts before its end is another attempt's, and its clock goes on so that
    it is not taken for a bar drawn twice. An epoch without a printed length ends at its last step.
    """
    step, epoch, bar_s = rows["step"], rows["epoch"], rows["bar_s"]
    total = rows["group"] if "group" in rows else rows["of"]
    before, passed, bars = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    for row in (np.flatnonzero(np.diff(step) < 0) + 1).tolist():
        length = step[row - 1] if np.isnan(total[row - 1]) else total[row - 1]
        if step[row] > length / 2 or bar_s[row] > bar_s[row - 1]:
            continue
        is_ended = "bar_s" in rows and step[row - 1] == length
        is_next = epoch[row] > epoch[row - 1] or (np.isnan(epoch[row]) and is_ended)
        if is_next:
            before[row:] += length
        if "bar_s" in rows:
            passed[row:] += bar_s[row - 1] + CUT_S
            bars[row:] += 1
            if not is_next:
                passed[row:] += max(2 * SAME_MOMENT_S - bar_s[row - 1], 0.0)
    columns = {"bar_s": bar_s + passed, "bars": bars} if passed.any() else {}
    return rows.replace(step=step + before, **columns)


def assemble(placed: Placed, *, path: Path, name: str, kind: str) -> list[RunLog]:
    """Return the runs in a text file's rows: a restart at or below the first step is another."""
    rows = placed.rows
    step = rows["step"].astype(np.int64)
    firsts = [0]
    firsts += [row for row in attempts(step, _clock(rows)).begun if step[row] <= step[firsts[-1]]]
    parts = [rows.take(np.arange(*ends)) for ends in pairwise([*firsts, len(rows)])]
    causes = exit_causes(path, after=int(parts[0]["place"][-1]) + 1)
    logs = []
    for number, part in enumerate(parts, start=1):
        until = parts[number]["place"][0] if number < len(parts) else np.inf
        mine = [cause for cause in causes if part["place"][-1] < cause.place < until]
        run_name = f"{name}#{number}" if len(parts) > 1 else name
        log = _log(part, mine, path=path, name=run_name, kind=kind)
        logs.append(replace(log, axis=placed.axis))
    return logs


def _clock(rows: Rows) -> Floats:
    """Return the clock by which a row printed twice differs from a step done twice."""
    names = (name for name in ("time", "bar_s", "elapsed_s", "train_s") if name in rows)
    return rows[next(names, "")]


def _log(rows: Rows, causes: Sequence[ExitCause], *, path: Path, name: str, kind: str) -> RunLog:
    # A validation may stand in a line of its own.
    number = np.cumsum(np.diff(rows["step"], prepend=np.nan) != 0) - 1
    printed = int((~np.isnan(rows["loss"])).sum())
    rows = rows.merged(number, first=True)
    repeated = printed - int((~np.isnan(rows["loss"])).sum())
    step = rows["step"].astype(np.int64)
    found = attempts(step, _clock(rows))
    kept = np.flatnonzero(found.of)
    kept = kept[np.argsort(step[kept], kind="stable")]
    remarks = []
    if found.begun:
        first = int(rows["line"][found.begun[0]])
        times = f" {len(found.begun)} times, first" if len(found.begun) > 1 else ""
        remarks.append(f"the step falls{times} at line {first}: {found.count} attempts")
    if found.twice + repeated:
        remarks.append(f"{found.twice + repeated} rows repeat a step")
    log = make_log(rows.take(kept), found.of[kept], path=path, name=name, kind=kind)
    events = log.events
    if cause := root_cause(causes):
        event = {"event": cause.event, "attempt": found.count, "line": cause.line}
        event |= {"step": int(step[-1])} | ({"reason": cause.reason} if cause.reason else {})
        events = (*events, event)
    remarks = [f"{name}: {remark}" for remark in remarks]
    return replace(log, attempts=found.count, events=events, remarks=tuple(remarks))


def make_log(rows: Rows, attempt: Ints, *, path: Path, name: str, kind: str) -> RunLog:
    """Return the log of rows in the order of their steps, one a step."""
    step, line = rows["step"].astype(np.int64), np.nan_to_num(rows["line"]).astype(np.int64)
    events: tuple[Mapping[str, Any], ...] = ()
    odd = np.flatnonzero(np.isinf(rows["loss"]))
    if len(odd):
        first = int(odd[0])
        event = {"event": "loss not finite", "reason": "nan", "rows": len(odd)}
        events = (event | {"step": int(step[first]), "line": int(line[first]), "attempt": 1},)
    values = {
        column: np.where(np.isfinite(numbers), numbers, np.nan)
        for column, numbers in rows.columns.items()
        if column == "loss" or (column not in _PLACES and np.isfinite(numbers).any())
    }
    return RunLog(
        name=name,
        path=path,
        format=kind,
        step=step,
        attempt=attempt,
        line=line,
        values=values,
        events=events,
        evaluations=_evaluations(step, line, values),
    )


def _evaluations(
    step: Ints, line: Ints, values: Mapping[str, Floats]
) -> tuple[Mapping[str, Any], ...]:
    """Return a record for every row with a metric that is named for an evaluation."""
    names = [name for name in values if _EVALUATION.search(name) and not name.endswith("_s")]
    beside = [name for name in ("time", "images") if name in values]
    present = np.zeros(len(step), dtype=bool)
    for name in names:
        present |= ~np.isnan(values[name])
    found = []
    for row in np.flatnonzero(present).tolist():
        record = {name: float(values[name][row]) for name in (*beside, *names)}
        record = {name: value for name, value in record.items() if not np.isnan(value)}
        found.append(record | {"step": int(step[row]), "line": int(line[row])})
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The attempt of each of `n` rows [n], 0 if it was printed twice or done again.

    `begun` are the rows at which a later attempt begins; `twice` counts rows that repeat a step.
    """

    of: Ints
    begun: list[int]
    twice: int

    @property
    def count(self) -> int:
        """The number of attempts."""
        return len(self.begun) + 1


def attempts(step: Ints, clock: Floats) -> Attempts:
    """Return the attempts in rows of `step` [n] and of a clock [n] (NaN if there is none).

    A step seen before was printed twice (by another rank, by a bar that is redrawn) if the clock
    shows the same moment; else it is done again, and the rows from that step on are superseded.
    A new step that is lower by more than a line or two out of order begins an attempt, too.
    """
    of, begun, twice = np.ones(len(step), dtype=np.int64), list[int](), 0
    if (np.diff(step) > 0).all():
        return Attempts(of=of, begun=begun, twice=twice)
    seen, recent, before = dict[int, int](), deque[int](maxlen=DISPLACED + 1), -1
    for row, now in enumerate(step.tolist()):
        earlier, is_repeated, before = seen.get(now), now == before, now
        if earlier is not None and not is_repeated:
            is_repeated = abs(clock[row] - clock[earlier]) <= SAME_MOMENT_S
        if is_repeated:
            of[row] = 0
            twice += 1
            continue
        if earlier is not None or (len(recent) > DISPLACED and now < min(recent)):
            begun.append(row)
            for old in [old for old in seen if old >= now]:
                of[seen.pop(old)] = 0
            recent.clear()
        of[row] = len(begun) + 1
        seen[now] = row
        recent.append(now)
    return Attempts(of=of, begun=begun, twice=twice)
