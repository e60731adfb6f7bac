"""Time, steps and images until a loss or an evaluation of a run reaches a target."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.measure.loss import final_loss
from analysis.measure.loss_curve import sense_of, why_other, why_unlike
from analysis.measure.time_breakdown import start_time
from analysis.read.run_log import CLOCKED, RunLog
from analysis.stats.intervals import Floats
from configs.errors import Unreadable
from runs.records import ends

MLPERF = "MLPerf"
_TARGET = re.compile(r"\s*(.+?)\s*(<=|>=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A metric and the value that counts as good enough."""

    name: str
    sense: Literal["<=", ">="]
    value: float

    def __str__(self) -> str:
        return f"{self.name}{self.sense}{self.value:.6g}"

    def index(self, values: Floats, *, of_first: bool) -> int | None:
        """Return the index of the first value that meets the target, or of the best such crossing.

        Of noisy values the first one meets it by luck, the earlier the noisier they are. The best
        crossing has the fewest values that meet the target before it, or miss it after it, up to
        the last one that meets it.
        """
        good = values <= self.value if self.sense == "<=" else values >= self.value
        if not good.any():
            return None
        if of_first:
            return int(np.argmax(good))
        good = good[: np.flatnonzero(good)[-1] + 1]
        misplaced = np.cumsum(good) - good + np.cumsum(~good[::-1])[::-1]
        best = np.flatnonzero(misplaced == misplaced.min())
        return int(best[len(best) // 2])


@dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """One run's way to the target: seconds since its start, and images seen (NaN if unknown).

    Between two evaluations, or two records of a loss, both are interpolated over the log of the
    images, and their logs may be off by `blur`. `is_bounded` says that there is a value before
    it that missed the target. The throughput counts training
    time alone, and `availability` is its share of the seconds, 1 if the run does not record it. The
    rest went into saves, samples and pauses.
    """

    log: RunLog
    seconds: float
    steps: float
    images: float
    is_bounded: bool
    blur: float
    images_per_s: float
    availability: float


def parse_target(text: str) -> Target:
    """Parse `loss<=0.25` or `eval_accuracy>=0.7`. Raise `Unreadable` for anything else."""
    match = _TARGET.fullmatch(text)
    if not match:
        form = "expected NAME<=VALUE or NAME>=VALUE, such as loss<=0.25"
        raise Unreadable(f"--target {text!r}: {form}")
    sense: Literal["<=", ">="] = "<=" if match[2] == "<=" else ">="
    return Target(name=match[1], sense=sense, value=float(match[3]))


def parse_or_find_target(text: str, logs: Sequence[RunLog]) -> Target:
    """Parse a target; of a name alone the value is the best that every run reached."""
    if not re.fullmatch(r"\w+", text):
        return parse_target(text)
    if text == "loss":  # of one record it would be luck
        found = [np.array([mean.value]) for log in logs if (mean := final_loss(log))]
    else:
        found = [_metric(log, text)[0] for log in logs]
    match sense_of(text):
        case "lower":
            return Target(name=text, sense="<=", value=max(float(one.min()) for one in found))
        case "higher":
            return Target(name=text, sense=">=", value=min(float(one.max()) for one in found))
    raise Unreadable(f"--target {text!r}: whether more of it is better is not known; add a value")


def time_to_target(log: RunLog, target: Target) -> TimeToTarget | None:
    """Return when a run reached the target, or None if it never did.

    A training loss is the mean since the record before, and counts in the middle between the two.
    An evaluation counts as it is, and in MLPerf's logs at its own time, because that is where
    their clock stops.
    """
    values, *places = _metric(log, target.name)
    index = target.index(values, of_first=log.format == MLPERF)
    began = start_time(log)
    if began is None:
        raise Unreadable(f"{log.path}: records no time beside its {target.name}")
    if index is None:
        return None
    progress = places[0] if np.isnan(places[1]).any() else places[1]
    at, begin = float(index), float(progress[index - 1]) if index else 0.0
    blur = 0.0
    if begin > 0 and log.format != MLPERF:
        before, after = values[index - 1], values[index]
        share = float((target.value - before) / (after - before))
        times = float(progress[index]) / begin
        # Losses fall less and less. A straight line over images is late by about twice as much as
        # one over their logs.
        straight, curved = 1 + share * (times - 1), times**share
        at += (curved - times) / (times - 1)
        blur = math.log(straight / curved)
    rows = np.arange(len(values))
    steps, images, time = (float(np.interp(at, rows, of)) for of in places)
    if math.isnan(time):
        raise Unreadable(f"{log.path}: records no time beside its {target.name}")
    seconds = _seconds_of_turns(log, time) if log.turns else time - began
    if seconds <= 0 or images <= 0:
        raise Unreadable(f"{log.path}: meets {target} before it has trained")
    known = ~np.isnan(log.column("train_s")) & ~np.isnan(log.column("time"))
    train_s = seconds if log.attempts == 1 else math.nan  # how long they waited is not told
    if known.any():
        train_s = float(np.interp(time, log.column("time")[known], log.column("train_s")[known]))
    return TimeToTarget(
        log=log,
        seconds=seconds,
        steps=steps,
        images=images,
        is_bounded=begin > 0,
        blur=blur,
        images_per_s=images / train_s,
        availability=train_s / seconds,
    )


def _seconds_of_turns(log: RunLog, time: float) -> float:
    """Return the seconds on the clocks of a run until a time: it waited while others had turns."""
    clocks = [log.column(name) for name in CLOCKED if name in log.values and name != "data_s"]
    return float(np.interp(time, log.column("time"), np.sum(clocks, axis=0)))


def _metric(log: RunLog, name: str) -> Floats:
    """Return the values of an evaluation, or else of the records, with their places [4, n].

    These are steps, images, which may be unknown, and times.
    """
    rows = [
        (row[name], row["step"], row.get("images", np.nan), _time_of(log, row))
        for row in log.evaluations
        if type(row.get(name)) in (int, float)
    ]
    if rows:
        return np.array(sorted(rows, key=lambda row: float(row[1])), dtype=np.float64).T
    time = log.column("time" if "time" in log.values else "elapsed_s")
    found = np.stack([log.column(name), log.step, log.column("images"), time])
    found = found[:, ~np.isnan(found[0])]
    if not found.size:
        raise Unreadable(f"{log.path}: records no {name}")
    if name == "loss" and found.shape[1] > 1:
        first = 2 * found[1:, :1] - found[1:, 1:2]
        gaps = np.diff(found[1:], prepend=first)
        # Between two attempts a run may have waited long.
        found[1:] -= np.minimum(gaps, np.median(gaps, axis=1, keepdims=True)) / 2
    return found


def _time_of(log: RunLog, row: Mapping[str, Any]) -> float:
    """Return the time of an evaluation; one that a person made after the end has its step's."""
    ended = [event["time"] for event in ends(log.events)]
    time = row.get("time", np.nan)
    if ended and time > max(ended):
        return float(next(iter(log.column("time")[log.step == row["step"]]), np.nan))
    return float(time)


Reached = tuple[RunLog, TimeToTarget | None]


def times_to_target(logs: Sequence[RunLog], target: Target) -> tuple[list[Reached], list[str]]:
    """Return each run with its way to the target, None if it never got there, and remarks.

    The remarks name runs that are left out. Raise `Unreadable` for losses of other terms.
    """
    for other in logs[1:]:
        if why := why_other([logs[0], other], target.name):
            raise Unreadable(f"{logs[0].name} and {other.name}: {target.name} by {why}")
        if why := why_unlike(logs[0], other, target.name):
            raise Unreadable(
                f"{logs[0].name} and {other.name}: {why}; take a target in their images, for "
                "example FID, or validation_loss"
            )
    found: list[Reached] = []
    remarks = []
    for log in logs:
        try:
            found.append((log, time_to_target(log, target)))
        except Unreadable as error:
            remarks.append(f"left out: {error}")
    return found, remarks
