"""Steady rates of runs and the ratios of arms: how fast, by how much, and how sure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measure.clocks import choose_clocks, intervals
from analysis.measure.differences import causes, differences
from analysis.measure.time_breakdown import TimeBreakdown, time_breakdown
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, ratio_interval, repeats_mean, repeats_ratio, scaled
from analysis.stats.steady_state import Steady, steady

WITHIN = "within-run only"


@dataclass(frozen=True, kw_only=True)
class MeasuredRate:
    """The steady rate of one run on one clock; `steady` is None where it has no interval."""

    log: RunLog
    clock: str
    unit: str
    steady: Steady | None
    images_per_step: float | None
    accounting: TimeBreakdown | None
    remarks: tuple[str, ...]

    @property
    def steps_per_s(self) -> Estimate | None:
        """Steps per second, where steps are what the clock counts."""
        return self.rate if self.unit == "step" else None

    @property
    def rate(self) -> Estimate | None:
        """Units (steps, most often) per second, the inverse of the median duration."""
        if self.steady is None:
            return None
        seconds = self.steady.seconds
        return Estimate(
            value=1 / seconds.value,
            low=1 / seconds.high if seconds.high else None,
            high=1 / seconds.low if seconds.low else None,
        )

    @property
    def images_per_s(self) -> float | None:
        """Images per second over all ranks."""
        if self.steps_per_s is None or self.images_per_step is None:
            return None
        return self.steps_per_s.value * self.images_per_step


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs alike but for their seed, measured on one clock; most often a single one."""

    runs: tuple[MeasuredRate, ...]

    @property
    def name(self) -> str:
        """The first run's name, with the number of its repeats."""
        more = len(self.runs) - 1
        return self.runs[0].log.name + (f" (+{more} alike)" if more else "")


def measure_rate(log: RunLog, *, clock: str | None) -> MeasuredRate:
    """The steady rate of a run, on a clock or (None) on the best that it has."""
    clock = clock or choose_clocks([log])[0]
    found = intervals(log, clock=clock)
    remarks = list(log.remarks)
    if not len(found.seconds):
        remarks.append(f"{log.name}: no two steps in one attempt with the {clock} clock")
        result = None
        per_step = None
    else:
        result = steady(found.seconds, found.attempt)
        images = found.images[~np.isnan(found.images)]
        per_step = float(np.median(images)) if len(images) else None
        remarks.append(_kept(log.name, result, left_out=found.left_out))
    return MeasuredRate(
        log=log,
        clock=clock,
        unit=found.unit,
        steady=result,
        images_per_step=per_step,
        accounting=time_breakdown(log),
        remarks=tuple(remarks),
    )


def _kept(name: str, result: Steady, *, left_out: int) -> str:
    parts = [f"{int(result.kept.sum())} of {len(result.kept)} intervals"]
    parts += [f"{result.warmup} cut as warm-up"] if result.warmup else []
    parts += [f"{result.outliers} as outliers"] if result.outliers else []
    parts += [f"{left_out} with a pause left out"] if left_out else []
    return f"{name}: steady rate from {', '.join(parts)}"


def group_arms(runs: Sequence[MeasuredRate]) -> list[Arm]:
    """Runs grouped: those that differ in nothing but seed, length and names are one arm's."""
    grouped: list[list[MeasuredRate]] = []
    for run in runs:
        for group in grouped:
            if is_repeat(group[0].log, run.log):
                group.append(run)
                break
        else:
            grouped.append([run])
    return [Arm(runs=tuple(group)) for group in grouped]


def is_repeat(a: RunLog, b: RunLog) -> bool:
    """Whether two runs asked for the same on the same machine, their seed aside."""
    if a.config is None or b.config is None:
        return False
    found = differences(a, b)
    return all(item.name == "seed" or not item.affects for item in found)


def speedup(base: Arm, arm: Arm) -> Estimate | None:
    """The ratio of rates: of images per second where both know it, else of steps per second.

    One run per arm: from the intervals within the runs. Repeats: from the scatter between runs.
    """
    scale = _images_ratio(base, arm)
    firsts = [one.runs[0].rate for one in (arm, base)]
    if firsts[0] is None or firsts[1] is None or why_not_comparable(base, arm):
        return None
    if len(base.runs) == len(arm.runs) == 1:
        found = ratio_interval(firsts[0], firsts[1])
    else:
        found = repeats_ratio(_rates(arm), _rates(base))
    return scaled(found, scale)


def _rates(arm: Arm) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([run.rate.value for run in arm.runs if run.rate])


def why_not_comparable(base: Arm, arm: Arm) -> str | None:
    """Why no ratio is taken of two arms: one across clocks would measure the clocks."""
    a, b = base.runs[0], arm.runs[0]
    if a.clock != b.clock:
        silent = next((run for run in (a, b) if run.steady is None), None)
        if silent is not None:
            return f"not compared: {silent.log.name} tells no time"
        return f"not compared: {b.clock} clock against {a.clock} clock"
    if a.clock == "printed" and a.log.format != b.log.format:
        return f"not compared: printed by {b.log.format} against printed by {a.log.format}"
    return f"not compared: {b.unit}s against {a.unit}s" if a.unit != b.unit else None


def _images_ratio(base: Arm, arm: Arm) -> float:
    above, below = arm.runs[0].images_per_step, base.runs[0].images_per_step
    return above / below if above and below else 1.0


def verdict(base: Arm, arm: Arm, ratio: Estimate | None) -> str:
    """What may be said of a ratio."""
    if refusal := why_not_comparable(base, arm):
        return refusal
    if ratio is None or ratio.low is None or ratio.high is None:
        return "undetermined"
    if ratio.low <= 1 <= ratio.high:
        word = "no detectable difference"
    else:
        word = "faster" if ratio.low > 1 else "slower"
    single = len(base.runs) == len(arm.runs) == 1
    return f"{word}, {WITHIN}" if single else word


def attribution(base: Arm, arm: Arm) -> str:
    """A sentence on what a ratio is of: one thing, several, or nothing that is known."""
    a, b = base.runs[0].log, arm.runs[0].log
    if a.config is None or b.config is None:
        return "configs unknown: not a speedup of anything named"
    found = causes(differences(a, b), of="clock")
    if not found:
        return "nothing known to affect the clock differs"
    if len(found) == 1:
        return f"speedup of {found[0]}"
    names = ", ".join(item.name for item in found)
    return f"{len(found)} things differ ({names}): no speedup of any one of them"


def pooled_rate(arm: Arm) -> Estimate | None:
    """The arm's steps per second: its run's own interval, or one from the scatter of its runs."""
    if len(arm.runs) == 1:
        return arm.runs[0].steps_per_s
    rates = _rates(arm)
    if len(rates) < 2 or arm.runs[0].unit != "step":
        return None
    return repeats_mean(rates)
