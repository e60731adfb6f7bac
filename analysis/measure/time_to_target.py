"""Time and samples until a loss or an evaluation reaches a target, by devices and global batch."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from analysis.measure.loss import same_quantity
from analysis.measure.speed import group_alike, is_repeat
from analysis.measure.time_breakdown import END_EVENTS, time_breakdown
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, Floats, estimate_fields, repeats_ratio
from configs.errors import Unreadable
from runs.records import starts

# A training loss counts as the median of this many records.
SMOOTHING = 5
# The attribute of a run behind each gain, and the power at which more of it is better.
GAINS = {
    "speedup": ("seconds", -1),
    "throughput_gain": ("images_per_s", 1),
    "statistical_efficiency": ("images", -1),
    "availability_gain": ("availability", 1),
}
# "no faster" excludes a larger speedup than this.
NO_FASTER = 1.1
_TARGET = re.compile(r"\s*(.+?)\s*(<=|>=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A metric and the value that counts as good enough."""

    name: str
    sense: Literal["<=", ">="]
    value: float

    def __str__(self) -> str:
        return f"{self.name}{self.sense}{self.value:.6g}"

    def first_index(self, values: Floats) -> int | None:
        """Return the index of the first value that meets the target."""
        good = values <= self.value if self.sense == "<=" else values >= self.value
        return int(np.argmax(good)) if good.any() else None


@dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """One run's way to the target: seconds since its start, and images seen.

    `share_before` is the share of these images at the last value that missed the target. The
    throughput is that of training time, and `availability` its share of the seconds, 1 if the run
    does not record it. The rest went into saves, samples and pauses.
    """

    seconds: float
    images: float
    share_before: float
    images_per_s: float
    availability: float


@dataclass(frozen=True, kw_only=True)
class TargetGroup:
    """Repeats of one run, or runs of one `size` without configs; `missed` failed the target.

    `size` is the number of devices and the global batch, 0 if unknown.
    """

    name: str
    size: tuple[int, int]
    reached: tuple[TimeToTarget, ...]
    missed: tuple[str, ...]

    def values(self, name: str) -> Floats:
        """Return an attribute of every run that reached the target."""
        return np.array([getattr(run, name) for run in self.reached])

    def mean(self, name: str) -> float | None:
        """Return the geometric mean of an attribute."""
        return float(np.exp(np.log(self.values(name)).mean())) if self.reached else None


def parse_target(text: str) -> Target:
    """Parse `loss<=0.25` or `eval_accuracy>=0.7`. Raise `Unreadable` for anything else."""
    match = _TARGET.fullmatch(text)
    if not match:
        form = "expected NAME<=VALUE or NAME>=VALUE, such as loss<=0.25"
        raise Unreadable(f"--target {text!r}: {form}")
    sense: Literal["<=", ">="] = "<=" if match[2] == "<=" else ">="
    return Target(name=match[1], sense=sense, value=float(match[3]))


def time_to_target(log: RunLog, target: Target) -> TimeToTarget | None:
    """Return when a run reached the target, or None if it never did.

    A training loss scatters between records, so the median of `SMOOTHING` records counts. An
    evaluation counts as it is.
    """
    rows, values = _metric(log, target.name)
    index = target.first_index(values)
    if index is None:
        return None
    row, began = rows[index], _start_time(log)
    ends = [event["time"] for event in log.events if event.get("event") in END_EVENTS]
    if ends and "step" in row and row.get("time", 0) > max(ends):
        # A checkpoint that was evaluated after the end.
        row["time"] = next(iter(log.column("time")[log.step == row["step"]]), None)
    if row.get("time") is None or row.get("images") is None or began is None:
        raise Unreadable(f"{log.path}: records no time or no images beside its {target.name}")
    seconds, images = float(row["time"] - began), float(row["images"])
    if seconds <= 0 or images <= 0:
        raise Unreadable(f"{log.path}: meets {target} before it has trained")
    train = log.column("train_s")[log.column("time") <= row["time"]]
    train_s = float(np.nanmax(train)) if (~np.isnan(train)).any() else seconds
    return TimeToTarget(
        seconds=seconds,
        images=images,
        share_before=float(rows[index - 1].get("images") or 0) / images if index else 0.0,
        images_per_s=images / train_s,
        availability=train_s / seconds,
    )


def _metric(log: RunLog, name: str) -> tuple[list[dict[str, Any]], Floats]:
    """Return rows, evaluations before steps, with a metric and its values [n], a loss smoothed."""
    rows = [dict(record) for record in log.evaluations if type(record.get(name)) in (int, float)]
    if rows:
        rows.sort(key=lambda record: record["step"])
    else:
        columns = {name: log.column(name), "time": _clock(log), "images": log.column("images")}
        rows = [
            {key: col[row] if not np.isnan(col[row]) else None for key, col in columns.items()}
            for row in np.flatnonzero(~np.isnan(columns[name]))
        ]
    if not rows:
        raise Unreadable(f"{log.path}: records no {name}")
    values = np.array([row[name] for row in rows], dtype=np.float64)
    return rows, _running_median(values) if name == "loss" else values


def _clock(log: RunLog) -> Floats:
    """Return the times of rows [n], or else the seconds since the start."""
    return log.column("time" if "time" in log.values else "elapsed_s")


def _running_median(values: Floats) -> Floats:
    """Return the median around each value [n], centred so that it does not lag."""
    padded = np.pad(values, SMOOTHING // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHING), axis=1)


def _start_time(log: RunLog) -> float | None:
    """Return the time of the run's first start, or its first time stamp."""
    begun = [event["time"] for event in starts(log.events)]
    breakdown = time_breakdown(log)
    if begun and breakdown is not None and "train_s" in log.values:
        return breakdown.began
    if "time" not in log.values and "elapsed_s" in log.values:
        return 0.0
    stamps = log.column("time")[~np.isnan(log.column("time"))]
    return min(begun) if begun else float(stamps[0]) if len(stamps) else None


def group_runs(logs: Sequence[RunLog], target: Target) -> list[TargetGroup]:
    """Group runs by devices and global batch; raise `Unreadable` for losses of other terms."""
    for other in logs[1:]:
        if not same_quantity(logs[0], other, target.name):
            raise Unreadable(
                f"{logs[0].name} and {other.name}: {target.name} is of other latents or of "
                "other terms; take a target in their images, for example FID, or validation_loss"
            )
    found = []
    for members in group_alike(sorted(logs, key=_size), _are_alike):
        times = {log.name: time_to_target(log, target) for log in members}
        found.append(
            TargetGroup(
                name=members[0].name,
                size=_size(members[0]),
                reached=tuple(one for one in times.values() if one),
                missed=tuple(name for name, one in times.items() if one is None),
            )
        )
    return found


def _are_alike(a: RunLog, b: RunLog) -> bool:
    return is_repeat(a, b) or (a.config is b.config is None and _size(a) == _size(b))


def _size(log: RunLog) -> tuple[int, int]:
    return _devices(log) or 0, log.global_batch or 0


def _devices(log: RunLog) -> int | None:
    """Return the number of ranks from our manifest or from an MLPerf log."""
    count = log.facts.get("number_of_ranks")
    return ranks(log.facts) or (int(count) if isinstance(count, int) else None)


def group_row(base: TargetGroup, group: TargetGroup) -> dict[str, Any]:
    """Return one row: speedup = throughput gain x statistical efficiency x availability gain.

    Each is a ratio of geometric means, with Student's interval from the scatter between seeds.
    """
    minutes, (gpus, batch) = (group.mean("seconds") or 0) / 60 or None, group.size
    gains = {name: _gain(base, group, *GAINS[name]) for name in GAINS}
    verdict = None if group is base else _verdict(gains["speedup"])
    row: dict[str, Any] = {"run": group.name, "verdict": verdict}
    row |= {"gpus": gpus or None, "global_batch": batch or None, "minutes": minutes}
    row |= {"runs": len(group.reached) + len(group.missed), "missed": len(group.missed) or None}
    row |= {"images_per_s": group.mean("images_per_s"), "samples_to_target": group.mean("images")}
    for name, gain in gains.items():
        row |= estimate_fields(name, gain)
    return row


def _gain(base: TargetGroup, group: TargetGroup, name: str, power: int) -> Estimate | None:
    """Return how much better a group is than the first; without repeats in both, no interval.

    Time and images to a target are known to one evaluation only, which widens their interval.
    """
    if not (base.reached and group.reached):
        return None
    found = repeats_ratio(group.values(name) ** power, base.values(name) ** power)
    is_repeated = min(len(base.reached), len(group.reached)) > 1
    is_bounded = all(run.share_before for run in (*base.reached, *group.reached))
    if group is base or base.missed or group.missed or not (is_repeated and is_bounded):
        return Estimate(value=found.value)
    early, late = (one.mean("share_before") or 1 if power < 0 else 1 for one in (base, group))
    return replace(found, low=(found.low or 0) * early, high=(found.high or math.inf) / late)


def _verdict(speedup: Estimate | None) -> str:
    if speedup is None or speedup.low is None or speedup.high is None:
        return "undetermined: one seed, or a target that was missed or met at once"
    if speedup.low > 1 or speedup.high < 1:
        return f"{'faster' if speedup.low > 1 else 'slower'} to the target"
    return "no faster to the target" if speedup.high <= NO_FASTER else "undetermined"


def samples_to_target(logs: Sequence[RunLog], target: str) -> tuple[dict[int, Floats], list[str]]:
    """Return images at the target by global batch, and remarks on the runs that are left out.

    A run that began from another's weights counts from there. If the target is a name alone, its
    value is the lowest that every run reached.
    """
    goal = _parse_or_find_target(target, logs)
    found: dict[int, list[float]] = defaultdict(list)
    remarks = [] if goal.name != target else [f"the target is {goal}"]
    for log in logs:
        batch = log.global_batch
        if batch is None:
            remarks.append(f"left out: {log.name}: its global batch is not known")
            continue
        try:
            reached = time_to_target(log, goal)
        except Unreadable as error:
            remarks.append(f"left out: {error}")
            continue
        if reached is None:
            remarks.append(
                f"left out: {log.name} never reached {goal}, which makes B_crit too large"
            )
        else:
            found[batch].append(reached.images)
    return {batch: np.array(images) for batch, images in sorted(found.items())}, remarks


def _parse_or_find_target(text: str, logs: Sequence[RunLog]) -> Target:
    if not re.fullmatch(r"\w+", text):
        return parse_target(text)
    lowest = [float(_metric(log, text)[1].min()) for log in logs]
    return Target(name=text, sense="<=", value=max(lowest))
