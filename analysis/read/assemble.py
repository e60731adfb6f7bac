"""Tells ranks, attempts and runs apart in the rows of one file, and makes a log of each run."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from analysis.read.attempts import attempts
from analysis.read.exit_causes import Ending, root_cause
from analysis.read.run_log import RunLog
from analysis.read.text.batch import RowBatch, select
from analysis.stats.intervals import Floats


def one_rank(rows: RowBatch) -> tuple[RowBatch, list[str]]:
    """The rows of the lowest rank where several print the same, and a remark on it."""
    named = rows.rank[rows.rank >= 0]
    if not len(named) or len(named := np.unique(named)) < 2:
        return rows, []
    with_loss = ~np.isnan(rows.values.get("loss", np.full(len(rows), np.nan)))
    speaking = [rank for rank in named if with_loss[rows.rank == rank].any()] or list(named)
    first = int(min(speaking))
    remark = f"{len(named)} ranks print; rank {first} is read"
    return select(rows, np.flatnonzero((rows.rank == first) | (rows.rank < 0))), [remark]


def main_group(rows: RowBatch) -> RowBatch:
    """Of bars side by side, the training's: the one with losses, else the one with most steps."""
    if (rows.group == rows.group[0]).all():
        return rows
    loss = rows.values.get("loss", np.full(len(rows), np.nan))
    trained = np.unique(rows.group[~np.isnan(loss)])
    groups = trained if len(trained) else np.unique(rows.group)
    best = groups[-1]
    if len(groups) > 1:
        best = max(groups, key=lambda g: (len(np.unique(rows.step[rows.group == g])), g))
    return select(rows, np.flatnonzero(rows.group == best))


def assemble(
    rows: RowBatch, told: Sequence[Ending], *, path: Path, name: str, kind: str
) -> list[RunLog]:
    """The runs in one file's rows: a restart at or below the first step is another run."""
    rows, remarks = one_rank(main_group(rows))
    firsts = _restarts(rows)
    bounds = [*firsts, len(rows)]
    logs = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        last_place = rows.place[end] if end < len(rows) else np.inf
        mine = [e for e in told if rows.place[start] <= e.place < last_place]
        part = select(rows, np.arange(start, end))
        called = f"{name}#{number + 1}" if len(firsts) > 1 else name
        logs.append(_log(part, mine, remarks, path=path, name=called, kind=kind))
    return logs


def _clock(rows: RowBatch) -> Floats:
    """What tells a row told twice from a step done twice: a clock, or else the loss itself."""
    for column in ("time", "bar_s", "elapsed_s"):
        if column in rows.values:
            return rows.values[column]
    return np.full(len(rows), np.nan)


def _restarts(rows: RowBatch) -> list[int]:
    """The first row of each run in a file."""
    firsts = [0]
    for row in attempts(rows.step, _clock(rows)).begun:
        if rows.step[row] <= rows.step[firsts[-1]]:
            firsts.append(row)
    return firsts


def _log(
    rows: RowBatch, told: Sequence[Ending], remarks: list[str], *, path: Path, name: str, kind: str
) -> RunLog:
    found = attempts(rows.step, _clock(rows))
    standing = np.flatnonzero(found.of)
    standing = standing[np.argsort(rows.step[standing], kind="stable")]
    kept = select(rows, standing)
    said = [*remarks]
    said += [f"line {rows.line[row]}: the step falls: another attempt" for row in found.begun]
    said += [f"{found.twice} rows told twice"] if found.twice else []
    return RunLog(
        name=name,
        path=path,
        format=kind,
        step=kept.step,
        attempt=found.of[standing],
        line=kept.line,
        values={n: c for n, c in kept.values.items() if not np.isnan(c).all()},
        events=_events(rows, told, found.count),
        attempts=found.count,
        remarks=tuple(f"{name}: {remark}" for remark in said),
    )


def _events(rows: RowBatch, told: Sequence[Ending], attempt: int) -> tuple[dict[str, object], ...]:
    """The cause of the file's end: what is told before the last row was overcome."""
    after = [ending for ending in told if ending.place > rows.place[-1]]
    cause = root_cause(after)
    if cause is None:
        return ()
    event = {
        "event": cause.event,
        "attempt": attempt,
        "line": cause.line,
        "step": int(rows.step[-1]),
    }
    return (event | ({"reason": cause.reason} if cause.reason else {}),)
