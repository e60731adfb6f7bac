"""Time and samples until a loss or an evaluation reaches a target, by devices and global batch."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.measure.loss import same_quantity
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from configs.errors import Unreadable

# A training loss counts as the median of this many records.
SMOOTHING = 5
MIN_FOR_OLYMPIC_MEAN = 3
_TARGET = re.compile(r"\s*(.+?)\s*(<=|>=)\s*([-+.\deE]+)\s*")


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

    `train_s` are the seconds of training in that time, None if the run does not record them. The
    rest went into saves, samples and pauses.
    """

    seconds: float
    images: float
    train_s: float | None


@dataclass(frozen=True, kw_only=True)
class BatchGroup:
    """Runs of one global batch and one number of devices; `missed` names those that failed."""

    gpus: int | None
    global_batch: int | None
    reached: tuple[TimeToTarget, ...]
    missed: tuple[str, ...]

    @property
    def minutes(self) -> float | None:
        """Olympic mean of the time to the target."""
        return olympic_mean(np.array([run.seconds for run in self.reached]) / 60)

    @property
    def samples(self) -> float | None:
        """Olympic mean of the images to the target."""
        return olympic_mean(np.array([run.images for run in self.reached]))

    @property
    def images_per_s(self) -> float | None:
        """Olympic mean of the throughput up to the target, of training time if it is recorded."""
        spent = [(run.images, run.train_s or run.seconds) for run in self.reached]
        return olympic_mean(np.array([images / s for images, s in spent if s > 0]))


def parse_target(text: str) -> Target:
    """Parse `loss<=0.25` or `eval_accuracy>=0.7`. Raise ValueError for anything else."""
    match = _TARGET.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r}: expected NAME<=VALUE or NAME>=VALUE, such as loss<=0.25")
    sense: Literal["<=", ">="] = "<=" if match[2] == "<=" else ">="
    return Target(name=match[1], sense=sense, value=float(match[3]))


def olympic_mean(values: Floats) -> float | None:
    """Return the mean without the best and the worst of `MIN_FOR_OLYMPIC_MEAN` or more values."""
    if not len(values):
        return None
    kept = np.sort(values)[1:-1] if len(values) >= MIN_FOR_OLYMPIC_MEAN else values
    return float(kept.mean())


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
    if row.get("time") is None or row.get("images") is None or began is None:
        raise Unreadable(f"{log.path}: records no time or no images beside its {target.name}")
    train = log.column("train_s")[log.column("time") <= float(row["time"])]
    return TimeToTarget(
        seconds=float(row["time"] - began),
        images=float(row["images"]),
        train_s=float(np.nanmax(train)) if (~np.isnan(train)).any() else None,
    )


def _metric(log: RunLog, name: str) -> tuple[list[dict[str, Any]], Floats]:
    """Return the rows that hold a metric and its values [n], a loss smoothed.

    Evaluations go before step rows.
    """
    rows = [dict(record) for record in log.evaluations if type(record.get(name)) in (int, float)]
    if rows:
        rows.sort(key=lambda record: record["step"])
    else:
        columns = {key: log.column(key) for key in (name, "time", "images")}
        rows = [
            {key: col[row] if not np.isnan(col[row]) else None for key, col in columns.items()}
            for row in np.flatnonzero(~np.isnan(columns[name]))
        ]
    if not rows:
        raise Unreadable(f"{log.path}: records no {name}")
    values = np.array([row[name] for row in rows], dtype=np.float64)
    return rows, _running_median(values) if name == "loss" else values


def _running_median(values: Floats) -> Floats:
    """Return the median around each value [n], centred so that it does not lag."""
    padded = np.pad(values, SMOOTHING // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHING), axis=1)


def _start_time(log: RunLog) -> float | None:
    """Return the time of the run's first start, or its first time stamp."""
    starts = [event["time"] for event in log.events if event.get("event") == "started"]
    breakdown = time_breakdown(log)
    if starts and breakdown is not None and "train_s" in log.values:
        return breakdown.began
    stamps = log.column("time")[~np.isnan(log.column("time"))]
    return min(starts) if starts else float(stamps[0]) if len(stamps) else None


def group_runs(logs: Sequence[RunLog], target: Target) -> list[BatchGroup]:
    """Group runs by devices and global batch, both ascending.

    Raise `Unreadable` if the target is a loss that is not the same quantity for all runs.
    """
    for other in logs[1:]:
        if not same_quantity(logs[0], other, target.name):
            raise Unreadable(
                f"{logs[0].name} and {other.name}: {target.name} is of other latents; take a "
                "target in their images, for example FID"
            )
    keyed: dict[tuple[int, int], list[RunLog]] = {}
    for log in logs:
        keyed.setdefault((_devices(log) or 0, log.global_batch or 0), []).append(log)
    found = []
    for (count, size), members in sorted(keyed.items()):
        times = {log.name: time_to_target(log, target) for log in members}
        found.append(
            BatchGroup(
                gpus=count or None,
                global_batch=size or None,
                reached=tuple(one for one in times.values() if one),
                missed=tuple(name for name, one in times.items() if one is None),
            )
        )
    return found


def _devices(log: RunLog) -> int | None:
    """Return the number of ranks from our manifest or from an MLPerf log."""
    count = log.facts.get("number_of_ranks")
    return ranks(log.facts) or (int(count) if isinstance(count, int) else None)


def group_row(base: BatchGroup, group: BatchGroup) -> dict[str, Any]:
    """Return one row: speedup = throughput gain x statistical efficiency x availability gain.

    The availability gain is the part that the first two do not explain: time without training.
    """
    speedup = _ratio(base.minutes, group.minutes)
    throughput = _ratio(group.images_per_s, base.images_per_s)
    statistical = _ratio(base.samples, group.samples)
    explained = throughput * statistical if throughput and statistical else None
    return {
        "gpus": group.gpus,
        "global_batch": group.global_batch,
        "runs": len(group.reached) + len(group.missed),
        "missed": len(group.missed) or None,
        "images_per_s": group.images_per_s,
        "minutes": group.minutes,
        "samples_to_target": group.samples,
        "speedup": speedup,
        "throughput_gain": throughput,
        "statistical_efficiency": statistical,
        "availability_gain": _ratio(speedup, explained),
    }


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


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
    try:
        if not re.fullmatch(r"\w+", text):
            return parse_target(text)
        lowest = [float(_metric(log, text)[1].min()) for log in logs]
        return Target(name=text, sense="<=", value=max(lowest))
    except ValueError as error:
        raise Unreadable(f"--target {error}") from None
