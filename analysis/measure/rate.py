"""The rate of a run on one clock, without its warm-up and its pauses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.measure.clocks import PAUSES, Intervals, choose_clocks, intervals, why_uncertain
from analysis.measure.loss_curve import Range
from analysis.read.run_log import RunLog, kept_with_log
from analysis.stats.intervals import Estimate
from analysis.stats.mean import MIN_VALUES, Mean
from analysis.stats.summary import MIN_SEGMENT, Summary, summarise

# A rate whose interval reaches further than this share of it is undetermined.
WIDEST = 0.25
# A share of the time in slow steps that is worth a remark.
NOTED_SHARE = 0.02
# Of the mean number of images, so that a constant one is whole.
DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class MeasuredRate:
    """The rate of one run on one clock after its warm-up; `summary` is None if nothing is timed.

    `unit` is what the clock counts: usually a step, else `epoch`, `sample`, `token/device`, ...
    """

    log: RunLog
    clock: str
    unit: str
    intervals: Intervals
    summary: Summary | None
    images_per_unit: float | None
    remarks: tuple[str, ...]

    @property
    def steps_per_s(self) -> Estimate | None:
        """Steps per second, None if the clock counts another unit."""
        return self.rate if self.unit == "step" else None

    @property
    def seconds(self) -> Mean | None:
        """The mean seconds of a unit; what its clock rounds is in the interval."""
        if self.summary is None:
            return None
        return self.summary.mean.widened(self.intervals.rounding_s)

    @property
    def blur(self) -> float:
        """The share of the rate that the rounding of its clock leaves open, also over repeats."""
        return self.intervals.rounding_s / self.summary.mean.value if self.summary else 0.0

    @property
    def rate(self) -> Estimate | None:
        """Units (usually steps) per second, the inverse of the mean duration."""
        if self.seconds is None:
            return None
        seconds = self.seconds.estimate()
        if self.evaluates:
            return Estimate(value=1 / seconds.value)
        return Estimate(
            value=1 / seconds.value,
            low=1 / seconds.high if seconds.high else None,
            high=1 / seconds.low if seconds.low and seconds.low > 0 else None,
        )

    @property
    def evaluates(self) -> bool:
        """Whether each interval holds an evaluation, so that training alone is not timed."""
        return self.clock in PAUSES and "always_evaluates" in self.log.facts

    @property
    def doubt(self) -> str | None:
        """Why the rate may be another one, so that it has no interval, alone or with repeats."""
        is_in_pieces = self.summary is not None and self.summary.is_in_pieces
        short = f"all attempts of {self.log.name} are too short to tell their warm-up"
        return (
            why_uncertain(self.log, clock=self.clock)
            or self._doubt_of_slow_steps()
            or (short if is_in_pieces else None)
        )

    def _doubt_of_slow_steps(self) -> str | None:
        """Return why slow steps may count too often, if the times of only some are printed."""
        step = self.log.step[self.intervals.row]
        each = np.median(np.diff(step)) if len(step) > 1 else 1
        is_of_some = self.clock == "printed" and self.log.axis == "step" and each > 1
        if is_of_some and self.summary is not None and self.summary.slow_share > NOTED_SHARE:
            return f"times of slow steps are printed: of one step, or the mean of {each:g}"
        return None

    @property
    def is_wide(self) -> bool:
        """Whether the rate is not known within a quarter of it."""
        seconds = self.seconds.estimate() if self.seconds else None
        return bool(seconds and seconds.low and seconds.low < (1 - WIDEST) * seconds.value)

    @property
    def why_undetermined(self) -> str | None:
        """Why the rate is not known within a quarter, None if it is."""
        if self.summary is None or self.seconds is None:
            return "no time is recorded"
        seconds = self.seconds.estimate()
        if self.doubt:
            return self.doubt
        if self.evaluates:
            return "every interval holds an evaluation: training alone is not timed"
        if seconds.low is None:
            return f"{int(self.summary.kept.sum())} intervals, fewer than {MIN_VALUES}"
        if self.is_wide:
            change = self.lasting_change()
            return change or "the speed wanders, or pauses, too much for so short a run"
        return None

    def lasting_change(self) -> str | None:
        """Return when the speed changed for good, and by how much."""
        change = self.summary.change if self.summary else None
        if change is None:
            return None
        step = self.log.step[self.intervals.start[change.index]]
        word, by = (
            ("slower", change.ratio - 1) if change.ratio > 1 else ("faster", 1 / change.ratio - 1)
        )
        return f"steps are {by:.0%} {word} from step {step} on"

    @property
    def images_per_s(self) -> float | None:
        """Images per second over all ranks."""
        per_unit = self.images_per_unit
        return self.rate.value * per_unit if self.rate and per_unit else None


def measure_rates(logs: Sequence[RunLog], *, clock: str | None = None) -> list[MeasuredRate]:
    """Measure runs on one clock, or on those that `choose_clocks` prefers if it is None."""
    clocks = [clock] * len(logs) if clock else choose_clocks(logs)
    return [measure_rate(log, clock=name) for log, name in zip(logs, clocks, strict=True)]


@kept_with_log
def measure_rate(
    log: RunLog,
    *,
    clock: str | None,
    within: Range | None = None,
    pairs: frozenset[complex] = frozenset(),
) -> MeasuredRate:
    """Measure the rate of a run on a clock, or on its best one if that is None.

    Only the intervals `within` a range of steps count, if one is given. If `pairs` of steps are
    given, as `Intervals.pairs` returns them, only the intervals between these do.
    """
    if clock is None:
        return measure_rate(log, clock=choose_clocks([log])[0])
    found = intervals(log, clock=clock)
    if within is not None:
        began, ended = log.step[found.start], log.step[found.row]
        found = found.where((began >= within.low) & (ended <= within.high))
    if pairs:
        found = found.where(np.isin(found.pairs(log.step), list(pairs)))
    summary = None
    if len(found.seconds):
        summary = summarise(found.seconds, found.attempt, steps=found.steps)
    unit = log.axis if found.unit == "step" else found.unit
    measured = MeasuredRate(
        log=log,
        clock=clock,
        unit=unit,
        intervals=found,
        summary=summary,
        images_per_unit=_images_per_unit(log, found, unit, summary),
        remarks=log.remarks,
    )
    if summary is not None and measured.doubt:
        # It is shown as read.
        unsure = replace(summary, mean=replace(summary.mean, error=None))
        measured = replace(measured, summary=unsure)
    return replace(measured, remarks=(*log.remarks, *_remarks(measured)))


def _remarks(found: MeasuredRate) -> list[str]:
    """Return what the rate is taken over, and what a reader should know of the rest."""
    name, summary = found.log.name, found.summary
    if summary is None:
        return [f"{name}: no two steps in one attempt with the {found.clock} clock"]
    parts = [f"{int(summary.kept.sum())} of {len(summary.kept)} intervals"]
    parts += [f"{summary.warmup} cut as warm-up"] if summary.warmup else []
    left_out = found.intervals.left_out
    parts += [f"{left_out} with a pause left out"] if left_out else []
    lines = [f"{name}: mean rate of {', '.join(parts)}"]
    if summary.slow_share > NOTED_SHARE:
        share = f"{summary.slow_share:.0%} of the time in steps over 2x the median"
        lines.append(f"{name}: {share}, which counts: the log does not say that these are pauses")
    change = found.lasting_change()
    return [*lines, f"{name}: {change}"] if change else lines


def _images_per_unit(
    log: RunLog, found: Intervals, unit: str, summary: Summary | None
) -> float | None:
    """Return the mean images of a unit over what the rate is taken from, else the batch of a step.

    Times the rate this is images per second, also of a batch that changes within a run.
    """
    kept = slice(None) if summary is None else summary.kept
    images, steps = found.images[kept], found.steps[kept]
    if (known := images > 0).any():
        return round(float(np.average(images[known], weights=steps[known])), DIGITS)
    if unit == "sample":
        return 1.0
    if unit != "step":
        return None
    return log.global_batch or log.last("batch")


@kept_with_log
def turn_rates(log: RunLog, *, clock: str) -> dict[str, float]:
    """Return the log of the units per second in each turn of a run, by round.

    A turn of fewer than `MIN_SEGMENT` intervals, such as an interrupted one, is left out: its
    warm-up could not be found.
    """
    rates: dict[str, float] = {}
    if not log.turns:
        return rates
    found = intervals(log, clock=clock)
    for name in dict.fromkeys(log.turns.values()):
        own = np.isin(found.attempt, [number for number in log.turns if log.turns[number] == name])
        if own.sum() >= MIN_SEGMENT:
            turn = summarise(found.seconds[own], found.attempt[own], steps=found.steps[own])
            rates[name] = -math.log(turn.mean.value)
    return rates
