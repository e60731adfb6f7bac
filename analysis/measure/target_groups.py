"""Groups of runs on their way to a target: speedup, and what it is made of, against the first."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.measure.differences import recipe
from analysis.measure.time_to_target import MLPERF, Reached, TimeToTarget
from analysis.observations import (
    begun_at,
    group_alike,
    may_be_arms,
    nodes_of,
    ran_at_once,
    seed_of,
    told_machines,
)
from analysis.one_training import distinct_runs
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats.contrast import contrast
from analysis.stats.intervals import Estimate, Floats, estimate_fields
from analysis.stats.replicates import Contrast, Quantity, Replicate, refused
from analysis.verdict import against_first

# The attribute of a run behind each gain, and the power at which more of it is better.
GAINS = {
    "speedup": ("seconds", -1),
    "throughput_gain": ("images_per_s", 1),
    "statistical_efficiency": ("images", -1),
    "availability_gain": ("availability", 1),
}
TO_TARGET = Quantity(name="speed to the target", better="higher", margin=0.02)


@dataclass(frozen=True, kw_only=True)
class TargetGroup:
    """Repeats of one run, or MLPerf's results of one `size`; `missed` failed the target.

    `size` is the number of devices and the global batch, 0 if unknown. `untimed` says why their
    times are not compared, and `remarks` name copies of others that are left out.
    """

    name: str
    size: tuple[int, int]
    reached: tuple[TimeToTarget, ...]
    missed: tuple[str, ...]
    untimed: str | None
    remarks: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """How many runs the group has."""
        return len(self.reached) + len(self.missed)

    def values(self, name: str) -> Floats:
        """Return an attribute of every run that reached the target."""
        return np.array([getattr(run, name) for run in self.reached])

    def mean(self, name: str) -> float | None:
        """Return the geometric mean of an attribute, None if a run does not know it."""
        values = self.values(name)
        is_known = len(values) and (values > 0).all()
        return float(np.exp(np.log(values).mean())) if is_known else None


def group_times(times: Sequence[Reached]) -> list[TargetGroup]:
    """Group runs by their recipe, in the order of devices and global batch."""
    logs = [log for log, _ in times]
    doubts = ((log, log.uncertain.get("time")) for log in logs)
    untimed = {id(log): f"{log.name}: {doubt}" for log, doubt in doubts if doubt}
    untimed |= ran_at_once(logs)
    groups = group_alike(sorted(times, key=lambda one: _size(one[0])), lambda one: _group(one[0]))
    return [
        _target_group(members, untimed)
        for group in groups
        for members in (
            [[one] for one in group] if may_be_arms([log for log, _ in group]) else [group]
        )
    ]


def _target_group(members: Sequence[Reached], untimed: Mapping[int, str]) -> TargetGroup:
    logs, remarks = distinct_runs([log for log, _ in members])
    kept = {id(log) for log in logs}
    counted = [(log, one) for log, one in members if id(log) in kept]
    return TargetGroup(
        name=logs[0].name,
        size=_size(logs[0]),
        reached=tuple(one for _, one in counted if one),
        missed=tuple(log.name for log, one in counted if one is None),
        untimed=next((untimed[own] for own in kept if own in untimed), None),
        remarks=tuple(remarks),
    )


def _group(log: RunLog) -> Hashable | None:
    """Return what repeats share: their recipe, or the devices and batch of MLPerf's results.

    Other logs without a config may differ in anything.
    """
    return recipe(log) or (_size(log) if log.format == MLPERF and any(_size(log)) else None)


def _size(log: RunLog) -> tuple[int, int]:
    return _devices(log) or 0, log.global_batch or 0


def _devices(log: RunLog) -> int | None:
    """Return the number of ranks from our manifest or from an MLPerf log."""
    count = log.facts.get("number_of_ranks")
    return ranks(log.facts) or (int(count) if isinstance(count, int) else None)


def group_rows(groups: Sequence[TargetGroup]) -> list[dict[str, Any]]:
    """Return a row per group: speedup = throughput gain x statistical efficiency x availability.

    Each is a ratio of geometric means, with the interval over seeds if there are enough.
    """
    base = groups[0]
    contrasts = [_told_pauses(base, group) for group in groups[1:]]
    verdicts = against_first(contrasts, TO_TARGET, names=[group.name for group in groups])
    return [
        _group_row(base, group) | verdict for group, verdict in zip(groups, verdicts, strict=True)
    ]


def _told_pauses(base: TargetGroup, group: TargetGroup) -> Contrast:
    """Return the contrast of the times, which says if pauses and waiting make most of it."""
    found = _contrast(base, group, "seconds", -1)
    gains = {name: _gain(base, group, of, power) for name, (of, power) in GAINS.items()}
    sizes = {name: abs(math.log(gain.value)) for name, gain in gains.items() if gain}
    own = gains["availability_gain"]
    factors = sizes.keys() - {"speedup"}
    if own is None or sizes["availability_gain"] < max(sizes[name] for name in factors):
        return found
    if sizes["availability_gain"] <= math.log1p(TO_TARGET.margin):
        return found
    remark = f"of which time without training makes {own.value:.2f}x"
    return replace(found, remarks=(*found.remarks, remark))


def _group_row(base: TargetGroup, group: TargetGroup) -> dict[str, Any]:
    minutes, (gpus, batch) = (group.mean("seconds") or 0) / 60 or None, group.size
    row: dict[str, Any] = {"run": group.name}
    row |= {"gpus": gpus or None, "global_batch": batch or None, "minutes": minutes}
    row |= {"runs": group.runs, "missed": len(group.missed) or None}
    row |= {"images_per_s": group.mean("images_per_s"), "samples_to_target": group.mean("images")}
    row |= {"steps_to_target": group.mean("steps") if group.mean("images") is None else None}
    for name, (of, power) in GAINS.items():
        row |= estimate_fields(name, _gain(base, group, of, power))
    return row


def _gain(base: TargetGroup, group: TargetGroup, name: str, power: int) -> Estimate | None:
    if base.mean(name) is None or group.mean(name) is None or base.missed or group.missed:
        return None
    if group is base:
        return Estimate(value=1.0)
    mean = _contrast(base, group, name, power).mean
    if mean is None:
        ratio = (group.mean(name) or 1.0) / (base.mean(name) or 1.0)
        return Estimate(value=ratio**power)
    return mean.ratio()


def _contrast(base: TargetGroup, group: TargetGroup, name: str, power: int) -> Contrast:
    """Return how much better a group is than the first, over seeds."""
    if base.missed or group.missed or not (base.reached and group.reached):
        reached = [f"{len(one.reached)} of {one.runs} of {one.name}" for one in (base, group)]
        return Contrast(mean=None, why=f"{' and '.join(reached)} reached the target")
    if not all(run.is_bounded for run in (*base.reached, *group.reached)):
        return Contrast(mean=None, why="a run met the target at its first value")
    if name != "images" and (why := base.untimed or group.untimed):
        return refused(why)
    doubts = (run.log.uncertain.get(of) for of in ("step", "time", "loss")
              for run in (*base.reached, *group.reached))  # fmt: skip
    if doubt := next(filter(None, doubts), None):
        return Contrast(mean=None, why=doubt)
    sides = [
        [
            Replicate(
                log=power * math.log(getattr(run, name)),
                seed=seed_of(run.log),
                nodes=nodes_of(run.log),
                began=begun_at(run.log),
                blur=run.blur if name in ("seconds", "images") else 0.0,
            )
            for run in side.reached
        ]
        for side in (base, group)
    ]
    if name == "images":
        return contrast(*sides, of_loss=True)
    return told_machines(contrast(*sides), [run.log for run in (*base.reached, *group.reached)])
