"""Time to a target: how soon a loss or an evaluation is reached, and what that time is made of."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from configs.errors import Unreadable

SMOOTHED = 5
OLYMPIC = 3
_TARGET = re.compile(r"\s*(.+?)\s*(<=|>=)\s*([-+.\deE]+)\s*")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A metric and the value at which it is good enough."""

    name: str
    sense: Literal["<=", ">="]
    value: float

    @property
    def spelled(self) -> str:
        """`NAME<=VALUE`."""
        return f"{self.name}{self.sense}{self.value:.6g}"

    def reached(self, values: Floats) -> int | None:
        """The index of the first value that reaches it."""
        good = values <= self.value if self.sense == "<=" else values >= self.value
        return int(np.argmax(good)) if good.any() else None


@dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """When one run reached the target: seconds since its start, and images seen.

    `busy_s` are the seconds of training in that time, where the run has that clock: the rest went
    into saves, samples and gaps.
    """

    log: RunLog
    seconds: float
    images: float
    busy_s: float | None
    line: int


@dataclass(frozen=True, kw_only=True)
class BatchGroup:
    """Runs of one batch and one number of devices; those that `missed` never arrived."""

    gpus: int | None
    global_batch: int | None
    arrivals: tuple[TimeToTarget, ...]
    missed: tuple[str, ...]

    @property
    def minutes(self) -> float | None:
        """Olympic mean of the time to the target."""
        return olympic_mean(np.array([one.seconds for one in self.arrivals]) / 60)

    @property
    def samples(self) -> float | None:
        """Olympic mean of the images to the target."""
        return olympic_mean(np.array([one.images for one in self.arrivals]))

    @property
    def images_per_s(self) -> float | None:
        """Olympic mean of the throughput up to the target, while training where that is known."""
        spent = [(one.images, one.busy_s or one.seconds) for one in self.arrivals]
        return olympic_mean(np.array([images / s for images, s in spent if s > 0]))


def parse_target(text: str) -> Target:
    """`loss<=0.25` or `eval_accuracy>=0.7`; ValueError for anything else."""
    match = _TARGET.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r}: expected NAME<=VALUE or NAME>=VALUE, such as loss<=0.25")
    sense: Literal["<=", ">="] = "<=" if match[2] == "<=" else ">="
    return Target(name=match[1], sense=sense, value=float(match[3]))


def olympic_mean(values: Floats) -> float | None:
    """The mean without the best and the worst, where there are at least `OLYMPIC` values."""
    if not len(values):
        return None
    kept = np.sort(values)[1:-1] if len(values) >= OLYMPIC else values
    return float(kept.mean())


def time_to_target(log: RunLog, target: Target) -> TimeToTarget | None:
    """When a run reached the target, None if never.

    A training loss scatters from record to record: what counts is the median of `SMOOTHED`
    records around it. An evaluation counts as it is.
    """
    rows, values = _judged(log, target.name)
    index = target.reached(values)
    if index is None:
        return None
    row = rows[index]
    begun = _begin(log)
    if row.get("time") is None or row.get("images") is None or begun is None:
        raise Unreadable(f"{log.path}: records no time or no images beside its {target.name}")
    return TimeToTarget(
        log=log,
        seconds=float(row["time"] - begun),
        images=float(row["images"]),
        busy_s=_busy(log, float(row["time"])),
        line=int(row["line"]),
    )


def lowest_value(log: RunLog, name: str) -> float:
    """The lowest value of a metric that a run reached, as `arrival` judges it."""
    return float(_judged(log, name)[1].min())


def _judged(log: RunLog, name: str) -> tuple[list[dict[str, Any]], Floats]:
    """The rows in which a metric stands, and its values [n], a loss smoothed."""
    rows = _series(log, name)
    if not rows:
        raise Unreadable(f"{log.path}: records no {name}")
    values = np.array([row[name] for row in rows], dtype=np.float64)
    return rows, _running_median(values) if name == "loss" else values


def _series(log: RunLog, name: str) -> list[dict[str, Any]]:
    """The rows in which a metric stands, in order: evaluations first of all, else step rows."""
    told = [dict(record) for record in log.evaluations if type(record.get(name)) in (int, float)]
    if told:
        return sorted(told, key=lambda record: record["step"])
    columns = {key: log.column(key) for key in (name, "time", "images")}
    return [
        {key: column[row] if not np.isnan(column[row]) else None for key, column in columns.items()}
        | {"line": log.line[row]}
        for row in np.flatnonzero(~np.isnan(columns[name]))
    ]


def _running_median(values: Floats) -> Floats:
    """The median of each value and its neighbours [n]; centred, so that it does not lag."""
    padded = np.pad(values, SMOOTHED // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED), axis=1)


def _begin(log: RunLog) -> float | None:
    """The run's first start, else its first time stamp."""
    starts = [event["time"] for event in log.events if event.get("event") == "started"]
    accounting = time_breakdown(log)
    if starts and accounting is not None and "train_s" in log.values:
        return accounting.began
    stamps = log.column("time")[~np.isnan(log.column("time"))]
    return min(starts) if starts else float(stamps[0]) if len(stamps) else None


def _busy(log: RunLog, until: float) -> float | None:
    """Seconds of training up to a moment, where the run has that clock."""
    rows = np.flatnonzero(log.column("time") <= until)
    train = log.column("train_s")[rows]
    return float(np.nanmax(train)) if (~np.isnan(train)).any() else None


def group_runs(logs: Sequence[RunLog], target: Target) -> list[BatchGroup]:
    """The runs by devices and batch, the fewest devices and smallest batch first."""
    keyed: dict[tuple[int, int], list[RunLog]] = {}
    for log in logs:
        keyed.setdefault((devices(log) or 0, batch(log) or 0), []).append(log)
    found = []
    for (count, size), members in sorted(keyed.items()):
        reached = {log.name: time_to_target(log, target) for log in members}
        found.append(
            BatchGroup(
                gpus=count or None,
                global_batch=size or None,
                arrivals=tuple(one for one in reached.values() if one),
                missed=tuple(name for name, one in reached.items() if one is None),
            )
        )
    return found


def devices(log: RunLog) -> int | None:
    """The number of ranks, of our manifest or as an MLPerf log tells it."""
    told = log.facts.get("number_of_ranks")
    return ranks(log.facts) or (int(told) if isinstance(told, int) else None)


def batch(log: RunLog) -> int | None:
    """The global batch of the config, or as an MLPerf log tells it."""
    asked = (log.config or {}).get("train.global_batch", log.facts.get("global_batch_size"))
    return int(asked) if isinstance(asked, int) else None


def group_row(base: BatchGroup, group: BatchGroup) -> dict[str, Any]:
    """One row: speedup = throughput gain x statistical efficiency x availability gain.

    What the first two do not explain is the availability's: time that was not training.
    """
    speedup = _over(base.minutes, group.minutes)
    throughput = _over(group.images_per_s, base.images_per_s)
    statistical = _over(base.samples, group.samples)
    explained = throughput * statistical if throughput and statistical else None
    return {
        "gpus": group.gpus,
        "global_batch": group.global_batch,
        "runs": len(group.arrivals) + len(group.missed),
        "missed": len(group.missed) or None,
        "images_per_s": group.images_per_s,
        "minutes": group.minutes,
        "samples_to_target": group.samples,
        "speedup": speedup,
        "throughput_gain": throughput,
        "statistical_efficiency": statistical,
        "availability_gain": _over(speedup, explained),
    }


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
