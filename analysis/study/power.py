"""The repeats and steps that show a difference, from the scatter of earlier runs."""

import math
from collections.abc import Sequence

import numpy as np

from analysis.measure.loss_curve import loss_curve
from analysis.measure.speed import Arm, group_arms, measure_rates
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats, seeds_needed
from configs.errors import Unreadable


def power_text(logs: Sequence[RunLog], *, of: str, difference: float) -> list[str]:
    """Return sentences on the repeats and steps with which cells differ by 1 + `difference`.

    The repeats are those of each of two cells, for the rate and for the last value of `of` (over
    seeds); the scatter is pooled over the cells that have repeats. The steps are those after which
    the median run's own interval is as narrow as the difference; it shrinks as 1 / sqrt(steps).
    """
    arms = group_arms(measure_rates(logs))
    rates = [np.array([run.rate.value for run in arm.runs if run.rate]) for arm in arms]
    texts = [
        _repeats("the rate", rates, difference=difference),
        _steps(arms, difference=difference),
        _repeats(of, [_last_values(arm, of) for arm in arms], difference=difference),
    ]
    if unfinished := sum(not _is_done(log) for log in logs):
        texts.append(f"{of}: left out, since they are not done: {unfinished} of {len(logs)} runs")
    return [text for text in texts if text]


def _repeats(quantity: str, cells: Sequence[Floats], *, difference: float) -> str:
    logs = [np.log(values) for values in cells if len(values) > 1 and (values > 0).all()]
    if not logs:
        return f"{quantity}: no cell has repeats that show its scatter"
    freedom = sum(map(len, logs)) - len(logs)
    scatter = math.sqrt(sum(float(log.var() * len(log)) for log in logs) / freedom)
    needed = seeds_needed(logs, ratio=1 + difference)
    found = f"{needed} repeats of a cell show" if needed else "a thousand repeats would hardly show"
    return (
        f"{quantity}: {found} a difference of {100 * difference:.3g} % in 4 of 5 studies "
        f"(95 % interval; repeats scatter by {scatter:.2g}, {freedom} degrees of freedom)"
    )


def _steps(arms: Sequence[Arm], *, difference: float) -> str | None:
    needed = []
    for run in (run for arm in arms for run in arm.runs):
        if run.summary and run.rate and run.rate.low and run.rate.high:
            half = math.log(run.rate.high / run.rate.low) / 2
            steps = int(run.log.step.max()) * int(run.summary.kept.sum()) / len(run.summary.kept)
            needed.append(steps * (half / math.log1p(difference)) ** 2)
    if not needed:
        return None
    steps = float(f"{np.median(needed):.2g}")
    return (
        f"within one run: about {steps:,.0f} steady steps for an interval of "
        f"+-{100 * difference:.3g} %; it does not hold what differs from run to run"
    )


def _last_values(arm: Arm, of: str) -> Floats:
    """Return the last value of each seed's curve; repeats of one seed have the same."""
    values = {}
    for run in (run for run in arm.runs if _is_done(run.log)):
        try:
            curve = loss_curve(run.log, by="step", of=of)
            values[(run.log.config or {}).get("seed")] = curve.loss[-1]
        except Unreadable:
            continue
    return np.array(list(values.values()))


def _is_done(log: RunLog) -> bool:
    """Return whether a run reached its last step; of another trainer's log that is not known."""
    return log.state.is_done or not log.state.has_events
