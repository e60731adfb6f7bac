"""Time, steps and samples until a loss or an evaluation of a run reaches a target."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from analysis.measure.differences import causes, differences
from analysis.measure.loss import final_loss
from analysis.measure.loss_curve import sense_of, why_other, why_unlike
from analysis.measure.time_breakdown import start_time
from analysis.observations import group_alike
from analysis.one_training import distinct_runs
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from configs.errors import Unreadable
from runs.records import ends

# Keys in which runs to one critical batch may differ within a batch.
FREE = ("seed", "train.steps")
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

    def are_met(self, values: Floats) -> NDArray[np.bool_]:
        """Return which values [n] meet the target."""
        return values <= self.value if self.sense == "<=" else values >= self.value

    def index(self, values: Floats, *, of_first: bool) -> int | None:
        """Return the index of the first value that meets the target, or of the best such crossing.

        Of noisy values the first one meets it by luck, the earlier the noisier they are. The best
        crossing has the fewest values that meet the target before it, or miss it after it, up to
        the last one that meets it.
        """
        good = self.are_met(values)
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


@dataclass(frozen=True, kw_only=True)
class _Metric:
    """Values [n] of a metric at steps [n], images [n], which may be unknown, and times [n]."""

    values: Floats
    step: Floats
    images: Floats
    time: Floats


def time_to_target(log: RunLog, target: Target) -> TimeToTarget | None:
    """Return when a run reached the target, or None if it never did.

    A training loss is the mean since the record before, and counts in the middle between the two.
    An evaluation counts as it is, and in MLPerf's logs at its own time, because that is where
    their clock stops.
    """
    found = _metric(log, target.name)
    index = target.index(found.values, of_first=log.format == MLPERF)
    began = start_time(log)
    if began is None:
        raise Unreadable(f"{log.path}: records no time beside its {target.name}")
    if index is None:
        return None
    at, progress = float(index), _progress(found)
    way, begin = float(progress[index]), float(progress[index - 1]) if index else 0.0
    blur = 0.0
    if begin > 0 and log.format != MLPERF:
        before, after = found.values[index - 1], found.values[index]
        share, times = float((target.value - before) / (after - before)), way / begin
        # Losses fall less and less. A straight line over images is late by about twice as much as
        # one over their logs.
        straight, curved = 1 + share * (times - 1), times**share
        at += (curved - times) / (times - 1)
        blur = math.log(straight / curved)
    rows = np.arange(len(found.values))
    steps, images, time = (
        float(np.interp(at, rows, of)) for of in (found.step, found.images, found.time)
    )
    if math.isnan(time):
        raise Unreadable(f"{log.path}: records no time beside its {target.name}")
    seconds = time - began
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


def _metric(log: RunLog, name: str) -> _Metric:
    """Return an evaluation, or else what the records have by the name."""
    rows = sorted(
        (record for record in log.evaluations if type(record.get(name)) in (int, float)),
        key=lambda record: float(record["step"]),
    )
    if rows:
        return _Metric(
            values=np.array([row[name] for row in rows], dtype=np.float64),
            step=np.array([row["step"] for row in rows], dtype=np.float64),
            images=np.array([row.get("images", np.nan) for row in rows], dtype=np.float64),
            time=np.array([_time_of(log, row) for row in rows], dtype=np.float64),
        )
    values, images, time = log.column(name), log.column("images"), _clock(log)
    known = ~np.isnan(values)
    if not known.any():
        raise Unreadable(f"{log.path}: records no {name}")
    step = log.step[known].astype(np.float64)
    found = _Metric(values=values[known], step=step, images=images[known], time=time[known])
    return _between_records(found) if name == "loss" else found


def _between_records(found: _Metric) -> _Metric:
    """Return values in the middle between their record and the one before."""
    if len(found.values) < 2:
        return found
    each = [(of, np.diff(of, prepend=2 * of[0] - of[1])) for of in
            (found.step, found.images, found.time)]  # fmt: skip
    # Between two attempts a run may have waited long.
    step, images, time = (of - np.minimum(gap, np.median(gap)) / 2 for of, gap in each)
    return _Metric(values=found.values, step=step, images=images, time=time)


def _clock(log: RunLog) -> Floats:
    """Return the times of rows [n], or else the seconds since the start."""
    return log.column("time" if "time" in log.values else "elapsed_s")


def _time_of(log: RunLog, row: Mapping[str, Any]) -> float:
    """Return the time of an evaluation; one that a person made after the end has its step's."""
    ended = [event["time"] for event in ends(log.events)]
    time = row.get("time", np.nan)
    if ended and time > max(ended):
        return float(next(iter(log.column("time")[log.step == row["step"]]), np.nan))
    return float(time)


def _progress(found: _Metric) -> Floats:
    """Return the images [n], or the steps if a row has no images."""
    return found.step if np.isnan(found.images).any() else found.images


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


def samples_to_target(
    logs: Sequence[RunLog], target: str
) -> tuple[dict[int, Floats], dict[int, float], list[str]]:
    """Return images at the target by global batch, their blur, and remarks on runs left out.

    A run that began from another's weights counts from there. If the target is a name alone, its
    value is the best that every run reached.
    """
    goal = _parse_or_find_target(target, logs)
    times, remarks = times_to_target(logs, goal)
    remarks += [] if goal.name != target else [f"the target is {goal}"]
    kept, copies = _distinct_by_batch([log for log, _ in times])
    remarks += copies
    found: dict[int, list[float]] = defaultdict(list)
    blur: dict[int, float] = defaultdict(float)
    for log, reached in times:
        if id(log) not in kept:
            continue
        if log.global_batch is None:
            remarks.append(f"left out: {log.name}: its global batch is not known")
        elif reached is None:
            remarks.append(
                f"left out: {log.name} never reached {goal}, which makes B_crit too large"
            )
        elif not reached.is_bounded:
            remarks.append(f"left out: {log.name} met {goal} at its first value")
        elif math.isnan(reached.images):
            remarks.append(f"left out: {log.name}: records no images")
        else:
            found[log.global_batch].append(reached.images)
            blur[log.global_batch] = max(blur[log.global_batch], reached.blur)
    return {batch: np.array(images) for batch, images in sorted(found.items())}, blur, remarks


def _distinct_by_batch(logs: Sequence[RunLog]) -> tuple[set[int], list[str]]:
    """Return the ids of runs without copies of others, and remarks on these.

    Raise `Unreadable` if runs of one batch differ in anything else that affects the loss.
    """
    kept, remarks = set[int](), list[str]()
    for group in group_alike(logs, lambda log: log.global_batch):
        for log in group[1:]:
            unlike = causes(differences(group[0], log), of="loss")
            if names := [item.name for item in unlike if item.name not in FREE]:
                raise Unreadable(
                    f"{group[0].name} and {log.name} have one batch and differ in "
                    f"{', '.join(names)}: take runs whose loss only the batch and the seed affect"
                )
        distinct, copies = distinct_runs(group)
        kept |= {id(log) for log in distinct}
        remarks += copies
    return kept, remarks


def _parse_or_find_target(text: str, logs: Sequence[RunLog]) -> Target:
    if not re.fullmatch(r"\w+", text):
        return parse_target(text)
    if text == "loss":  # of one record it would be luck
        found = [np.array([mean.value]) for log in logs if (mean := final_loss(log))]
    else:
        found = [_metric(log, text).values for log in logs]
    match sense_of(text):
        case "lower":
            return Target(name=text, sense="<=", value=max(float(one.min()) for one in found))
        case "higher":
            return Target(name=text, sense=">=", value=min(float(one.max()) for one in found))
    raise Unreadable(f"--target {text!r}: whether more of it is better is not known; add a value")
