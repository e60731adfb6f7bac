"""Steady rates of runs, and speedups between arms with their intervals and verdicts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from analysis.measure.clocks import Intervals, choose_clocks, intervals, why_uncertain
from analysis.measure.differences import causes, differences, yaml_text
from analysis.measure.time_breakdown import TimeBreakdown, time_breakdown
from analysis.read.run_log import RunLog, kept_with_log
from analysis.stats.intervals import (
    Estimate,
    Floats,
    PairedRatio,
    paired_ratio,
    ratio_interval,
    repeats_mean,
    repeats_ratio,
    scaled,
    widened,
)
from analysis.stats.steady_state import MIN_SEGMENT, Steady, steady
from configs.schema.study import FEWEST_ROUNDS

MOST_IN_WORDS = 3
WITHIN_RUN, THIS_NODE = "within-run only", "this node only"
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class MeasuredRate:
    """The steady rate of one run on one clock; `steady` is None if no interval can be timed.

    `unit` is what the clock counts: usually a step, else `epoch`, `sample`, `token/device`, ...
    """

    log: RunLog
    clock: str
    unit: str
    steady: Steady | None
    images_per_unit: float | None
    breakdown: TimeBreakdown | None
    remarks: tuple[str, ...]

    @property
    def steps_per_s(self) -> Estimate | None:
        """Steps per second, None if the clock counts another unit."""
        return self.rate if self.unit == "step" else None

    @property
    def rate(self) -> Estimate | None:
        """Units (usually steps) per second, the inverse of the median duration."""
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
        per_unit = self.images_per_unit
        return self.rate.value * per_unit if self.rate and per_unit else None


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Repeats that differ in their seed only, measured on one clock; often a single run."""

    runs: tuple[MeasuredRate, ...]

    @property
    def name(self) -> str:
        """The first run's name, and the number of further repeats."""
        repeats = len(self.runs) - 1
        return self.runs[0].log.name + (f" (+{repeats} alike)" if repeats else "")


def measure_rates(logs: Sequence[RunLog], *, clock: str | None = None) -> list[MeasuredRate]:
    """Measure runs on one clock, or on those that `choose_clocks` prefers if it is None."""
    clocks = [clock] * len(logs) if clock else choose_clocks(logs)
    return [measure_rate(log, clock=name) for log, name in zip(logs, clocks, strict=True)]


@kept_with_log
def measure_rate(log: RunLog, *, clock: str | None) -> MeasuredRate:
    """Measure the steady rate of a run on a clock, or on its best one if that is None."""
    if clock is None:
        return measure_rate(log, clock=choose_clocks([log])[0])
    found = intervals(log, clock=clock)
    if len(found.seconds):
        result = steady(found.seconds, found.attempt)
        result = replace(result, seconds=widened(result.seconds, found.rounding_s))
        if why_uncertain(log, clock=clock):
            result = replace(result, seconds=replace(result.seconds, low=None, high=None))
        remark = _kept_remark(log.name, result, left_out=found.left_out)
    else:
        result = None
        remark = f"{log.name}: no two steps in one attempt with the {clock} clock"
    unit = log.axis if found.unit == "step" else found.unit
    return MeasuredRate(
        log=log,
        clock=clock,
        unit=unit,
        steady=result,
        images_per_unit=_images_per_unit(log, found, unit),
        breakdown=time_breakdown(log),
        remarks=(*log.remarks, remark),
    )


def _images_per_unit(log: RunLog, found: Intervals, unit: str) -> float | None:
    """Return the images of a unit as recorded, else the batch if the unit is a step."""
    images = found.images[~np.isnan(found.images)]
    if len(images):
        return float(np.median(images))
    if unit == "sample":
        return 1.0
    batch = log.global_batch or log.last("batch") if unit == "step" else None
    return float(batch) if batch and batch > 0 else None


def _kept_remark(name: str, result: Steady, *, left_out: int) -> str:
    parts = [f"{int(result.kept.sum())} of {len(result.kept)} intervals"]
    parts += [f"{result.warmup} cut as warm-up"] if result.warmup else []
    parts += [f"{result.outliers} as outliers"] if result.outliers else []
    parts += [f"{left_out} with a pause left out"] if left_out else []
    return f"{name}: steady rate from {', '.join(parts)}"


def group_arms(runs: Sequence[MeasuredRate]) -> list[Arm]:
    """Group runs into arms, whose runs differ only in seed and in keys that affect nothing."""
    groups = group_alike(runs, lambda a, b: is_repeat(a.log, b.log))
    return [Arm(runs=tuple(group)) for group in groups]


def group_alike(items: Sequence[Item], are_alike: Callable[[Item, Item], bool]) -> list[list[Item]]:
    """Group items with the first that each is alike, in the order of first items."""
    groups: list[list[Item]] = []
    for item in items:
        group = next((group for group in groups if are_alike(group[0], item)), None)
        if group is None:
            groups.append(group := [])
        group.append(item)
    return groups


def is_repeat(a: RunLog, b: RunLog) -> bool:
    """Whether two runs differ only in seed and in keys that affect nothing."""
    if a.config is None or b.config is None:
        return False
    found = differences(a, b)
    return all(item.name == "seed" or not item.affects for item in found)


def speedup(base: Arm, arm: Arm) -> Estimate | None:
    """Return the ratio of images per second, or of steps per second if either lacks images.

    The interval comes from the rounds in which both took turns, else from the scatter between
    repeats, or from the intervals within two single runs. Return None if the arms cannot be
    compared.
    """
    above, below = arm.runs[0], base.runs[0]
    if above.rate is None or below.rate is None or why_not_comparable(base, arm):
        return None
    if paired := by_rounds(base, arm):
        found = paired.ratio
    elif _is_single(base, arm):
        found = ratio_interval(above.rate, below.rate)
    else:
        found = repeats_ratio(_rates(arm), _rates(base))
    images = (above.images_per_unit, below.images_per_unit)
    return scaled(found, images[0] / images[1] if images[0] and images[1] else 1.0)


def by_rounds(base: Arm, arm: Arm) -> PairedRatio | None:
    """Return the ratio of units per second over rounds in which both arms took turns, if any."""
    return paired_ratio(_by_round(arm), _by_round(base), fewest=FEWEST_ROUNDS)


def _by_round(arm: Arm) -> dict[str, float]:
    """Return the mean log of an arm's units per second in each round."""
    found = [turn_rates(run.log, clock=run.clock) for run in arm.runs]
    rounds = dict.fromkeys(name for rates in found for name in rates)
    return {
        name: float(np.mean([rates[name] for rates in found if name in rates])) for name in rounds
    }


@kept_with_log
def turn_rates(log: RunLog, *, clock: str) -> dict[str, float]:
    """Return the log of the steady units per second in each turn of a run, by round.

    A turn of fewer than `MIN_SEGMENT` intervals, such as an interrupted one, is left out: its
    warm-up could not be found.
    """
    found, rates = intervals(log, clock=clock), dict[str, float]()
    for name in dict.fromkeys(log.turns.values()):
        own = np.isin(found.attempt, [number for number in log.turns if log.turns[number] == name])
        if own.sum() >= MIN_SEGMENT:
            rates[name] = -math.log(steady(found.seconds[own], found.attempt[own]).seconds.value)
    return rates


def _is_single(base: Arm, arm: Arm) -> bool:
    return len(base.runs) == len(arm.runs) == 1


def _rates(arm: Arm) -> Floats:
    return np.array([run.rate.value for run in arm.runs if run.rate])


def why_not_comparable(base: Arm, arm: Arm) -> str | None:
    """Return why two arms have no ratio, or None: across clocks it would measure the clocks."""
    a, b = base.runs[0], arm.runs[0]
    if a.clock != b.clock:
        untimed = next((run for run in (a, b) if run.steady is None), None)
        if untimed is not None:
            return f"not compared: {untimed.log.name} records no time"
        return f"not compared: {b.clock} clock against {a.clock} clock"
    if a.unit != b.unit:
        return f"not compared: {b.unit}s against {a.unit}s"
    if a.clock == "printed" and a.log.format != b.log.format:
        return f"not compared: printed by {b.log.format} against printed by {a.log.format}"
    return None


def verdict(base: Arm, arm: Arm, ratio: Estimate | None) -> str:
    """Return `faster`, `slower`, `no detectable difference`, or why there is no verdict."""
    if refusal := why_not_comparable(base, arm):
        return refusal
    if ratio is None or ratio.low is None or ratio.high is None:
        return "undetermined"
    if ratio.low <= 1 <= ratio.high:
        word = "no detectable difference"
    else:
        word = "faster" if ratio.low > 1 else "slower"
    if by_rounds(base, arm):
        return f"{word}, {THIS_NODE}"
    return f"{word}, {WITHIN_RUN}" if _is_single(base, arm) else word


def attribution(base: Arm, arm: Arm) -> str:
    """Return a phrase that attributes a ratio to one difference, to several, or to none known."""
    a, b = base.runs[0].log, arm.runs[0].log
    if a.config is None or b.config is None:
        return "configs unknown: the ratio cannot be attributed"
    found = causes(differences(a, b), of="clock")
    if not found:
        return "nothing known to affect the clock differs"
    if len(found) == 1:
        return f"speedup of {found[0]}"
    names = ", ".join(item.name for item in found)
    return f"{len(found)} things differ ({names}): not the speedup of any one of them"


def arm_in_words(base: Arm, arm: Arm) -> str:
    """Return how an arm differs, such as `300 steps against 150 steps`, or else its name."""
    found = differences(base.runs[0].log, arm.runs[0].log)
    known = {item.name: item for of in ("loss", "clock") for item in causes(found, of=of)}
    known.pop("seed", None)
    if not 0 < len(known) <= MOST_IN_WORDS or base.runs[0].log.config is None:
        return arm.name
    after = ", ".join(_side(item.name, item.b) for item in known.values())
    before = ", ".join(_side(item.name, item.a) for item in known.values())
    return f"{after} against {before}"


def _side(name: str, value: object) -> str:
    if name == "train.steps":
        return f"{value} steps"
    return f"{name.rpartition('.')[2].replace('_', ' ')} {yaml_text(value)}"


def pooled_rate(arm: Arm) -> Estimate | None:
    """Return an arm's units per second, with the run's own interval or that between repeats."""
    if len(arm.runs) == 1:
        return arm.runs[0].rate
    rates = _rates(arm)
    return repeats_mean(rates) if len(rates) > 1 else None
