"""Groups of runs on their way to a target: speedup, what it is made of, and images by batch."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.measure.differences import causes, differences, recipe
from analysis.measure.loss import why_doubtful
from analysis.measure.time_to_target import (
    MLPERF,
    Reached,
    TimeToTarget,
    parse_or_find_target,
    times_to_target,
)
from analysis.observations import (
    contrast_of_seeds,
    group_alike,
    ran_at_once,
    replicate,
    told_machines,
)
from analysis.one_training import distinct_runs
from analysis.read.machine import gpu, ranks
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, Floats, estimate_fields
from analysis.stats.replicates import Contrast, Quantity, refused
from analysis.verdict import against_first
from configs.errors import Unreadable

# The attribute of a run behind each gain, and the power at which more of it is better.
GAINS = {
    "speedup": ("seconds", -1),
    "throughput_gain": ("images_per_s", 1),
    "statistical_efficiency": ("images", -1),
    "availability_gain": ("availability", 1),
}
TO_TARGET = Quantity(name="speed to the target", better="higher", margin=0.02)
# Keys in which runs to one critical batch may differ within a batch.
FREE = ("seed", "train.steps")


@dataclass(frozen=True, kw_only=True)
class TargetGroup:
    """Runs that belong together, and the ways of those that reached the target.

    `remarks` name copies of others that are left out.
    """

    logs: tuple[RunLog, ...]
    reached: tuple[TimeToTarget, ...]
    remarks: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the first run."""
        return self.logs[0].name

    @property
    def missed(self) -> list[str]:
        """The names of the runs that never reached the target."""
        reached = {id(one.log) for one in self.reached}
        return [log.name for log in self.logs if id(log) not in reached]

    def mean(self, name: str) -> float | None:
        """Return the geometric mean of an attribute, None if a run does not know it."""
        values = np.array([getattr(run, name) for run in self.reached])
        is_known = len(values) and (values > 0).all()
        return float(np.exp(np.log(values).mean())) if is_known else None


def group_times(
    times: Sequence[Reached], key: Callable[[RunLog], Hashable | None]
) -> list[TargetGroup]:
    """Group runs by a key; a run without one stands alone."""
    groups = []
    for members in group_alike(times, lambda one: key(one[0])):
        logs, remarks = distinct_runs([log for log, _ in members])
        kept = {id(log) for log in logs}
        reached = tuple(one for log, one in members if one and id(log) in kept)
        groups.append(TargetGroup(logs=tuple(logs), reached=reached, remarks=tuple(remarks)))
    return groups


def group_repeats(times: Sequence[Reached]) -> list[TargetGroup]:
    """Group runs by their recipe, in the order of devices and global batch.

    MLPerf's results have none, and are grouped by devices and batch. Other logs without a config
    may differ in anything.
    """

    def key(log: RunLog) -> Hashable | None:
        is_result = log.format == MLPERF and any(_size(log))
        return recipe(log) or (_size(log) if is_result else None)

    return group_times(sorted(times, key=lambda one: _size(one[0])), key)


def _size(log: RunLog) -> tuple[int, int]:
    """Return the number of devices, by our manifest or an MLPerf log, and the batch; 0: unknown."""
    count = log.facts.get("number_of_ranks")
    devices = ranks(log.facts) or (int(count) if isinstance(count, int) else 0)
    return devices, log.global_batch or 0


def group_rows(groups: Sequence[TargetGroup]) -> list[dict[str, Any]]:
    """Return a row per group: speedup = throughput gain x statistical efficiency x availability.

    Each is a ratio of geometric means, with the interval over seeds if there are enough.
    """
    base = groups[0]
    at_once = ran_at_once([log for group in groups for log in group.logs])
    gains = [
        {name: _contrast(base, group, *of, at_once) for name, of in GAINS.items()}
        for group in groups[1:]
    ]
    rows = [_group_row(base, *pair) for pair in zip(groups, [None, *gains], strict=True)]
    contrasts = [
        _told_pauses(own["speedup"], row) for own, row in zip(gains, rows[1:], strict=True)
    ]
    verdicts = against_first(contrasts, TO_TARGET, names=[group.name for group in groups])
    return [row | verdict for row, verdict in zip(rows, verdicts, strict=True)]


def _told_pauses(found: Contrast, row: Mapping[str, Any]) -> Contrast:
    """Return the contrast of the times, which says if pauses and waiting make most of it."""
    own = row["availability_gain"]
    if own is None or abs(math.log(own)) <= math.log1p(TO_TARGET.margin):
        return found
    factors = [row[name] for name in GAINS if name != "speedup" and row[name]]
    if abs(math.log(own)) < max(abs(math.log(factor)) for factor in factors):
        return found
    remark = f"of which time without training makes {own:.2f}x"
    return replace(found, remarks=(*found.remarks, remark))


def _group_row(
    base: TargetGroup, group: TargetGroup, gains: Mapping[str, Contrast] | None
) -> dict[str, Any]:
    gpus, batch = _size(group.logs[0])
    row: dict[str, Any] = {
        "run": group.name,
        "gpu": gpu(group.logs[0].facts),
        "gpus": gpus or None,
        "global_batch": batch or None,
        "minutes": (group.mean("seconds") or 0) / 60 or None,
        "runs": len(group.logs),
        "missed": len(group.missed) or None,
        "images_per_s": group.mean("images_per_s"),
        "samples_to_target": group.mean("images"),
        "steps_to_target": group.mean("steps") if group.mean("images") is None else None,
    }
    for name, (of, power) in GAINS.items():
        before, after = base.mean(of), group.mean(of)
        gain = None
        if before and after and not (base.missed or group.missed):
            mean = gains[name].mean if gains else None
            gain = mean.ratio() if mean else Estimate(value=(after / before) ** power)
        row |= estimate_fields(name, gain)
    return row


def _contrast(
    base: TargetGroup, group: TargetGroup, name: str, power: int, at_once: Mapping[int, str]
) -> Contrast:
    """Return how much better a group is than the first, over seeds."""
    if base.missed or group.missed:
        reached = [f"{len(one.reached)} of {len(one.logs)} of {one.name}" for one in (base, group)]
        return Contrast(mean=None, why=f"{' and '.join(reached)} reached the target")
    runs = (*base.reached, *group.reached)
    if not all(run.is_bounded for run in runs):
        return Contrast(mean=None, why="a run met the target at its first value")
    whys = [at_once[id(run.log)] for run in runs if id(run.log) in at_once]
    if whys and name != "images":
        return refused(whys[0])
    doubted = ("step",) if name == "images" else ("step", "time")
    doubts = (why_doubtful(run.log) or next(filter(None, map(run.log.uncertain.get, doubted)), None)
              for run in runs)  # fmt: skip
    if doubt := next(filter(None, doubts), None):
        return Contrast(mean=None, why=doubt)
    if not (base.mean(name) and group.mean(name)):
        return Contrast(mean=None, why=f"{name} are not known")
    sides = [
        [
            replicate(
                run.log,
                power * math.log(getattr(run, name)),
                blur=run.blur if name in ("seconds", "images") else 0.0,
            )
            for run in side.reached
        ]
        for side in (base, group)
    ]
    if name == "images":
        return contrast_of_seeds(*sides, of_loss=True)
    return told_machines(contrast_of_seeds(*sides), [run.log for run in runs])


def samples_to_target(
    logs: Sequence[RunLog], target: str
) -> tuple[dict[int, Floats], dict[int, float], list[str]]:
    """Return images at the target by global batch, their blur, and remarks on runs left out.

    A run that began from another's weights counts from there. If the target is a name alone, its
    value is the best that every run reached. Raise `Unreadable` if runs of one batch differ in
    anything else that affects the loss.
    """
    goal = parse_or_find_target(target, logs)
    times, remarks = times_to_target(logs, goal)
    remarks += [] if goal.name != target else [f"the target is {goal}"]
    of_known = [one for one in times if one[0].global_batch is not None]
    remarks += [f"left out: {log.name}: its global batch is not known"
                for log, _ in times if log.global_batch is None]  # fmt: skip
    found: dict[int, Floats] = {}
    blur: dict[int, float] = {}
    for group in group_times(of_known, lambda log: log.global_batch):
        batch = group.logs[0].global_batch or 0
        for log in group.logs[1:]:
            unlike = causes(differences(group.logs[0], log), of="loss")
            if names := [item.name for item in unlike if item.name not in FREE]:
                raise Unreadable(
                    f"{group.name} and {log.name} have one batch and differ in "
                    f"{', '.join(names)}: take runs whose loss only the batch and the seed affect"
                )
        remarks += group.remarks
        remarks += [
            f"left out: {name} never reached {goal}, which makes B_crit too large"
            for name in group.missed
        ]
        remarks += [
            f"left out: {run.log.name} met {goal} at its first value"
            if not run.is_bounded
            else f"left out: {run.log.name}: records no images"
            for run in group.reached
            if not run.is_bounded or math.isnan(run.images)
        ]
        kept = [run for run in group.reached if run.is_bounded and not math.isnan(run.images)]
        if kept:
            found[batch] = np.array([run.images for run in kept])
            blur[batch] = max(run.blur for run in kept)
    return dict(sorted(found.items())), blur, remarks
