"""Read the steps of a `command` run from the log of its program."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.read.options import ReadOptions, reading_with
from analysis.read.other_logs import read_file
from analysis.read.run_log import Ints, RunLog
from analysis.stats.intervals import Floats
from configs.errors import Unreadable
from configs.run.folder import RunFolder

# Clocks of a log that tells the time itself.
_CLOCKS = frozenset(["time", "bar_s", "elapsed_s", "train_s", "step_s", "steps_per_s"])


def with_program_log(run: RunFolder, log: RunLog) -> RunLog:
    """Return the log of a run with the steps that its program printed, or wrote to `log.file`."""
    told: Mapping[str, Any] = run.config_tree().get("log") or {}
    options = ReadOptions(pattern=told.get("pattern"), columns=told.get("columns") or {})
    name = told.get("file")
    printed = [(number, run.attempt(number) / "output.log") for number in run.attempts()]
    written = [(None, path) for path in sorted((run.path / "output").glob(name))] if name else []
    parts, remarks = [], list(log.remarks)
    for number, path in written or ([] if name else printed):
        if not path.is_file() or not path.stat().st_size:
            continue
        with reading_with(options):
            found = read_file(path, name=run.name)
        if found:
            part = max(found, key=len)
            parts.append(part if number is None else _of_attempt(part, number))
            remarks += [remark for remark in part.remarks if number is None or "step" in remark]
        if len(found) > 1:
            remarks.append(f"{path}: {len(found)} runs in it; the longest is read")
        if name and parts:
            break
    if not parts:
        where = f"{run.path}/output/{name}" if name else f"{run.path}/attempts/*/output.log"
        hint = "docs/own-script.md says how to make it readable"
        return replace(log, remarks=(*remarks, f"{run.name}: no step in {where}; {hint}"))
    return replace(_joined(parts, log), remarks=tuple(dict.fromkeys(remarks)))


def _of_attempt(part: RunLog, number: int) -> RunLog:
    """Return the log of one attempt, with the times of its lines if it tells no time."""
    values = dict(part.values)
    arrivals = part.path.with_name("arrivals.txt")
    if _CLOCKS.isdisjoint(values) and arrivals.is_file():
        values["time"] = _times(part.path, arrivals, part.line)
    return replace(part, attempt=np.full(len(part), number), values=values)


def _times(path: Path, arrivals: Path, line: Ints) -> Floats:
    """Return when each line [n] of a log was complete, in seconds since 1970."""
    try:
        size, time = np.loadtxt(arrivals, ndmin=2).T
    except ValueError:
        raise Unreadable(f"{arrivals}: not pairs of a length and a time") from None
    text = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    ends = np.append(np.flatnonzero(text == 10) + 1, len(text))
    piece = np.searchsorted(size, ends[np.minimum(line, len(ends)) - 1])
    return np.append(time, np.nan)[np.minimum(piece, len(time))]


def _joined(parts: list[RunLog], log: RunLog) -> RunLog:
    """Return the rows of all attempts; one that resumes supersedes the later steps before it."""
    kept: list[tuple[RunLog, NDArray[np.bool_]]] = []
    first = np.inf
    for part in reversed(parts):
        rows = part.step < first
        kept.insert(0, (part, rows))
        first = min(first, part.step[0]) if len(part) else first
    names = dict.fromkeys(name for part in parts for name in part.values)
    return replace(
        log,
        source=parts[-1].path,
        format=parts[-1].format,
        axis=parts[-1].axis,
        step=np.concatenate([part.step[rows] for part, rows in kept]),
        attempt=np.concatenate([part.attempt[rows] for part, rows in kept]),
        line=np.concatenate([part.line[rows] for part, rows in kept]),
        values={n: np.concatenate([part.column(n)[rows] for part, rows in kept]) for n in names},
        evaluations=tuple(entry for part, _ in kept for entry in part.evaluations),
    )
