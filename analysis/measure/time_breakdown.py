"""The time of a run by purpose, from its first start to its last record."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.read.machine import gpu, ranks
from analysis.read.run_log import CLOCKED, RunLog, kept_with_log
from configs.errors import Unreadable
from runs.records import ends, starts, submissions

# Rows that were written out of order fall by less.
MOST_FALL_S = 60.0
# Records that are as many times the median, and as long, apart may have waited for another job.
LONGEST_PAUSE, LONGEST_PAUSE_S = 20.0, 600.0
# A log that begins after more intervals than this lacks its head.
LATEST_HEAD = 2
CLOCKS_DISAGREE = (
    "an attempt began before the one before it ended, so the clocks of its nodes disagree"
)
PARTS = (
    "queue", "setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval",
    "profile", "lost", "between", "other",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TimeBreakdown:
    """Seconds by purpose; `began` (since 1970) and `wall_s` exclude the queue.

    A branch has the clocks of its trunk: it `began` with this, and the seconds are its own.
    `allocated_s` are those for which the run had its devices: all but the time between attempts.
    `device_s` are the seconds of attempts times their ranks by the model of their GPUs, NaN if the
    ranks are not known. `setup` includes the start of the job if it is recorded, and all of an
    attempt whose ranks never started. `train` excludes
    waits for data. `lost` is training that a later attempt repeated, `between` the time between
    attempts, and `other` the time that no clock of the run covers. If the clocks of attempts
    disagree, `began` and `wall_s` are NaN.
    """

    began: float
    wall_s: float
    allocated_s: float
    seconds: Mapping[str, float]
    steps: int
    device_s: Mapping[str | None, float]

    @property
    def steps_per_s(self) -> float | None:
        """The end-to-end rate: steps without repeated ones, over all time but the queue."""
        return self.steps / self.wall_s if self.wall_s > 0 and self.steps > 0 else None


@kept_with_log
def time_breakdown(log: RunLog) -> TimeBreakdown | None:
    """Return a run's time by purpose, or None if its records have no times, or uncertain ones."""
    if "time" in log.uncertain:
        return None
    rows, begun = _all_rows(log), {event["attempt"]: event for event in starts(log.events)}
    placed = {number for number, stay in log.stays.items() if None not in (stay.began, stay.ended)}
    attempts = sorted(begun.keys() | placed)
    if not attempts:
        return _from_timestamps(log)
    seconds = dict.fromkeys(PARTS, 0.0)
    began, ended, allocated_s, trunk_s = math.nan, -math.inf, 0.0, 0.0
    device_s: dict[str | None, float] = {}
    for number in attempts:
        own = sorted(
            (row for row in rows if row["attempt"] == number), key=lambda row: int(row["step"])
        )
        start, stay = begun.get(number), log.stays.get(number)
        base = _row_before(rows, number, start.get("step", 0) if start else 0)
        if start and own and number == attempts[0]:
            base = _clocks_of_trunk(start, own)
            trunk_s = sum(base[name] for name in base if name != "data_s")
        job_began, job_ended = (stay.began, stay.ended) if stay else (None, None)
        begin = job_began or 0.0
        if start is not None:
            clocked = _clock_start(start["time"], own, base)
            begin = min(clocked, job_began or clocked)
            seconds["setup"] += clocked - begin
        # The end events hold the clocks of what follows the last step: its save and samples.
        records = [*own, *_end_events(log, number)]
        for name in CLOCKED:
            seconds[name.removesuffix("_s")] += _increase(records, name, base.get(name, 0.0))
        later = [event.get("step", 0) for after, event in begun.items() if after > number]
        repeated = [row for row in own if later and row["step"] > min(later)]
        kept = own[len(own) - len(repeated) - 1] if len(repeated) < len(own) else base
        seconds["lost"] += _increase(repeated, "train_s", kept.get("train_s", 0.0))
        end = max(begin, *_end_times(log, own, number), job_ended or begin)
        seconds["setup"] += end - begin if start is None else 0.0
        count, model = ranks(log.facts), gpu(log.facts)
        if stay is not None and stay.ranks is not None:
            count, model = stay.ranks, stay.gpu
        device_s[model] = device_s.get(model, 0.0) + (end - begin) * (count or np.nan)
        allocated_s += end - begin
        if number == attempts[0]:
            began = begin
        elif begin < ended - MOST_FALL_S:
            began = math.nan
        else:
            seconds["between"] += max(0.0, begin - ended)
        ended = max(ended, end)
    seconds["train"] -= seconds["data"] + seconds["lost"]
    queued = [event["time"] for event in submissions(log.events)]
    seconds["queue"] = max(0.0, began - queued[0]) if queued and began > 0 else 0.0
    known = sum(value for name, value in seconds.items() if name not in ("queue", "between"))
    seconds["other"] = max(0.0, allocated_s - known)
    return TimeBreakdown(
        began=began - trunk_s,
        wall_s=ended - began,
        allocated_s=allocated_s,
        seconds=seconds,
        steps=int(log.step[-1]) if len(log) else 0,
        device_s=device_s,
    )


def _from_timestamps(log: RunLog) -> TimeBreakdown | None:
    """Return the time from the first to the last row with a time stamp, without parts.

    How long attempts waited for each other is not told, and so their devices are not; long pauses
    are `between`. Time stamps that fall, such as local ones after summer time, tell no time.
    """
    rows = np.flatnonzero(~np.isnan(log.column("time")))
    time = log.column("time")[rows]
    waits = np.diff(time)
    if len(rows) < 2 or waits.min() < -MOST_FALL_S:
        return None
    between = float(waits[waits > max(LONGEST_PAUSE * np.median(waits), LONGEST_PAUSE_S)].sum())
    wall_s, count = float(time[-1] - time[0]), ranks(log.facts) if log.attempts == 1 else None
    return TimeBreakdown(
        began=float(time[0]),
        wall_s=wall_s,
        allocated_s=wall_s - between,
        seconds={"between": between} if between else {},
        steps=int(log.step[rows[-1]] - log.step[rows[0]]),
        device_s={gpu(log.facts): (count or np.nan) * (wall_s - between)},
    )


def _clock_start(started: float, own: list[dict[str, Any]], base: Mapping[str, Any]) -> float:
    """Return when an attempt's clocks began: set-up may precede its `started` event."""
    if not own:
        return started
    first = own[0]
    spent = [first.get(name, 0.0) - base.get(name, 0.0) for name in CLOCKED if name != "data_s"]
    return float(min(started, first["time"] - sum(spent)))


def _clocks_of_trunk(
    start: Mapping[str, Any], own: Sequence[Mapping[str, Any]]
) -> Mapping[str, float]:
    """Return the clocks at the start of a branch, by the pace of its records; else nothing."""
    first, last, step = own[0], own[-1], start.get("step", 0)
    base = {name: float(first[name]) for name in CLOCKED if name in first} if step else {}
    for name in base.keys() & {"train_s", "data_s"} if len(own) > 1 else ():
        pace = (last[name] - first[name]) / (last["step"] - first["step"])
        base[name] = max(0.0, base[name] - pace * (first["step"] - step))
    return base


def _end_times(log: RunLog, own: list[dict[str, Any]], number: int) -> list[float]:
    """Return the times of an attempt's end events, otherwise of all its records.

    Evaluations that a person made after the end are not time of the run.
    """
    events = [one for one in log.events if one["attempt"] == number and "time" in one]
    ended = [event["time"] for event in _end_events(log, number)]
    return ended or [*(event["time"] for event in events), *(row["time"] for row in own)]


def _end_events(log: RunLog, number: int) -> list[Mapping[str, Any]]:
    return ends(event for event in log.events if event["attempt"] == number)


def _all_rows(log: RunLog) -> list[dict[str, Any]]:
    """Return every recorded step, including those that a later attempt repeated."""
    names = [name for name in CLOCKED if name in log.values]
    rows = [
        {"attempt": int(log.attempt[i]), "step": int(log.step[i]), "time": log.column("time")[i]}
        | {name: log.values[name][i] for name in names if not np.isnan(log.values[name][i])}
        for i in range(len(log))
    ]
    return [*rows, *(dict(record) for record in log.lost if "step" in record)]


def _row_before(rows: Iterable[Mapping[str, Any]], attempt: int, step: int) -> Mapping[str, Any]:
    """Return the newest row of earlier attempts up to a step: the clocks at a resume."""
    older = [row for row in rows if row["attempt"] < attempt and row["step"] <= step]
    return max(older, key=lambda row: (row["step"], row["attempt"]), default={})


def _increase(rows: Iterable[Mapping[str, Any]], name: str, base: float) -> float:
    values = [row[name] for row in rows if type(row.get(name)) in (int, float, np.float64)]
    return max(0.0, max(values) - base) if values else 0.0


def start_time(log: RunLog) -> float | None:
    """Return the time of the run's first start, by its first record and its pace if need be."""
    begun = [event["time"] for event in starts(log.events)]
    breakdown = time_breakdown(log)
    if begun and breakdown is not None and "train_s" in log.values:
        if math.isnan(breakdown.began):
            raise Unreadable(f"{log.path}: {CLOCKS_DISAGREE}")
        return breakdown.began
    if "time" not in log.values and "elapsed_s" in log.values:
        return 0.0
    known = ~np.isnan(log.column("time"))
    time, step = log.column("time")[known], log.step[known]
    if begun or len(time) < 2:
        return min(begun, default=None)
    steps = np.diff(step)
    if step[0] > LATEST_HEAD * np.median(steps):
        raise Unreadable(f"{log.path}: begins at step {step[0]}: when it began is not known")
    return float(time[0] - step[0] * np.median(np.diff(time)[steps > 0] / steps[steps > 0]))


def time_rows(logs: Iterable[RunLog]) -> list[dict[str, Any]]:
    """Return the seconds of each run by purpose, and its end-to-end rate."""
    found = []
    for log, breakdown in ((log, time_breakdown(log)) for log in logs):
        if breakdown is not None:
            parts = breakdown.seconds.items()
            found.append(
                {
                    "run": log.name,
                    "end_to_end_steps_per_s": breakdown.steps_per_s,
                    "wall_s": None if math.isnan(breakdown.wall_s) else breakdown.wall_s,
                }
                | {f"{name}_s": round(value, 3) for name, value in parts if value >= 0.0005}
            )
    return found
