"""Where the time of a run went, from its first start to its last record."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.read.run_log import RunLog

PARTS = (
    "queue", "setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval",
    "profile", "lost", "between", "other",
)  # fmt: skip
ENDS = ("paused", "stopped", "done", "failed")
COUNTED = (
    "setup_s", "load_s", "quantise_s", "cache_s", "train_s", "data_s", "save_s", "sample_s",
    "eval_s", "profile_s",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TimeBreakdown:
    """Seconds by purpose; `began` (since 1970) and `wall_s` leave out the queue.

    `setup` begins with the job where the run tells it. `train` is without waits for data, `lost`
    is training that a later attempt did again, `between` the gaps between attempts, `other` what
    no clock of the run was running for.
    """

    began: float
    wall_s: float
    seconds: Mapping[str, float]
    steps: int

    @property
    def allocated_s(self) -> float:
        """Seconds for which the run had its devices: all but the gaps between its attempts."""
        return self.wall_s - self.seconds.get("between", 0.0)

    @property
    def steps_per_s(self) -> float | None:
        """The end-to-end rate: steps that stand, over all the time but the queue."""
        return self.steps / self.wall_s if self.wall_s > 0 and self.steps > 0 else None


def time_breakdown(log: RunLog) -> TimeBreakdown | None:
    """The accounting of a run; None where its records do not tell when it began and ended."""
    rows, starts = _rows(log), _starts(log)
    if not rows or not starts:
        return _from_stamps(log)
    seconds = dict.fromkeys(PARTS, 0.0)
    began, ended = float("inf"), float("-inf")
    for number, start in sorted(starts.items()):
        inside = [row for row in rows if row["attempt"] == number]
        base = _before(rows, number, start["step"])
        begin = _begin(start["time"], inside, base)
        job_began, job_ended = log.allocated.get(number, (begin, None))
        seconds["setup"] += max(0.0, begin - job_began)
        begin = min(begin, job_began)
        if number > min(starts):
            seconds["between"] += max(0.0, begin - ended)
        # What follows the last step, its save and its samples, only the end tells.
        told = [*inside, *_ends(log, number)]
        for name in COUNTED:
            seconds[name.removesuffix("_s")] += _grown(told, name, base.get(name, 0.0))
        if (following := starts.get(number + 1)) is not None:
            again = [row for row in inside if row["step"] > following["step"]]
            kept = _before(rows, number + 1, following["step"])
            seconds["lost"] += _grown(again, "train_s", kept.get("train_s", 0.0))
        began = min(began, begin)
        ended = max(ended, begin, *(_moments(log, inside, number)), job_ended or begin)
    seconds["train"] -= seconds["data"] + seconds["lost"]
    queued = [event["time"] for event in log.events if event.get("event") == "queued"]
    seconds["queue"] = max(0.0, began - queued[0]) if queued else 0.0
    said = sum(value for name, value in seconds.items() if name != "queue")
    seconds["other"] = max(0.0, ended - began - said)
    steps = int(log.step[-1]) if len(log) else 0
    return TimeBreakdown(began=began, wall_s=ended - began, seconds=seconds, steps=steps)


def _from_stamps(log: RunLog) -> TimeBreakdown | None:
    """What time stamps alone say: how long it took from the first row to the last."""
    rows = np.flatnonzero(~np.isnan(log.column("time")))
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    began = float(log.column("time")[first])
    wall, steps = float(log.column("time")[last]) - began, int(log.step[last] - log.step[first])
    return TimeBreakdown(began=began, wall_s=wall, seconds={}, steps=steps)


def _starts(log: RunLog) -> dict[int, Mapping[str, Any]]:
    """The `started` event of each attempt, with the step that it went on from."""
    return {
        event["attempt"]: {"time": event["time"], "step": event.get("step", 0)}
        for event in log.events
        if event.get("event") == "started"
    }


def _begin(started: float, inside: list[dict[str, Any]], base: Mapping[str, Any]) -> float:
    """When an attempt's clocks began: some of its set-up may precede its `started` event."""
    if not inside:
        return started
    first = inside[0]
    spent = [first.get(name, 0.0) - base.get(name, 0.0) for name in COUNTED if name != "data_s"]
    return float(min(started, first["time"] - sum(spent)))


def _moments(log: RunLog, inside: list[dict[str, Any]], number: int) -> list[float]:
    """Times up to which the attempt ran: to its last event, or its last sign of life.

    What was evaluated after its end, by hand, is no time of the run.
    """
    told = [event for event in log.events if event["attempt"] == number]
    ends = [event["time"] for event in _ends(log, number)]
    return ends or [*(event["time"] for event in told), *(row["time"] for row in inside)]


def _ends(log: RunLog, number: int) -> list[Mapping[str, Any]]:
    """The events that an attempt ended with."""
    told = (event for event in log.events if event["attempt"] == number)
    return [event for event in told if event.get("event") in ENDS]


def _rows(log: RunLog) -> list[dict[str, Any]]:
    """Every step recorded, those that were done again as well."""
    names = [name for name in COUNTED if name in log.values]
    standing = [
        {"attempt": int(log.attempt[i]), "step": int(log.step[i]), "time": log.column("time")[i]}
        | {name: log.values[name][i] for name in names if not np.isnan(log.values[name][i])}
        for i in range(len(log))
    ]
    return [*standing, *(dict(record) for record in log.lost)]


def _before(rows: Iterable[Mapping[str, Any]], attempt: int, step: int) -> Mapping[str, Any]:
    """The newest row of earlier attempts up to a step: what the clocks stood at on a resume."""
    older = [row for row in rows if row["attempt"] < attempt and row["step"] <= step]
    return max(older, key=lambda row: row["step"], default={})


def _grown(rows: Iterable[Mapping[str, Any]], name: str, base: float) -> float:
    shown = [row[name] for row in rows if type(row.get(name)) in (int, float, np.float64)]
    return max(0.0, max(shown) - base) if shown else 0.0
