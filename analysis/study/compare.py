"""Speed, loss and quality of arms against the first one, a row for each."""

from collections.abc import Sequence
from typing import Any

from analysis.measure.loss import Compared, loss_contrast
from analysis.measure.loss_curve import NO_TRAINING
from analysis.measure.quality import FID, quality_contrast, quality_of
from analysis.measure.speed import (
    SPEED,
    Arm,
    group_arms,
    measure_rates,
    scatter_of_cells,
    speed_contrast,
)
from analysis.measure.speed_table import difference_rows
from analysis.observations import attributed
from analysis.read.run_log import RunLog
from analysis.stats.contrast import Contrast, Quantity
from analysis.stats.judge import judge
from analysis.stats.sequential import CommonVariance
from analysis.verdict import verdict_fields


def arms_of(logs: Sequence[RunLog]) -> list[Arm]:
    """Return runs that differ in their seed only as one arm; if that leaves one, each run alone."""
    runs = measure_rates(logs)
    arms = group_arms(runs)
    return arms if len(arms) > 1 else [Arm(runs=(run,)) for run in runs]


def comparison_rows(arms: Sequence[Arm], *, by: str, margin: float) -> list[dict[str, Any]]:
    """Return a row per arm but the first and quantity, whose verdicts share one error.

    The quantities are the speed, the training loss, and the validation loss and the FID if both
    arms have them.
    """
    base, *others = arms
    common = scatter_of_cells(arms)
    pairs = [
        (arm, *one)
        for arm in others
        for one in _contrasts(base, arm, common=common, by=by, margin=margin)
    ]
    judged = judge(*(([contrast], quantity) for _, quantity, contrast in pairs))
    return [
        {"run": arm.name, "against": base.name, "quantity": quantity.name}
        | verdict_fields(verdict, quantity, base=base.name, arm=arm.name)
        | {"differs": _differs(base, arm, quantity)}
        for (arm, quantity, _), [verdict] in zip(pairs, judged, strict=True)
    ]


def _contrasts(
    base: Arm, arm: Arm, *, common: CommonVariance, by: str, margin: float
) -> list[tuple[Quantity, Contrast]]:
    logs = [[run.log for run in one.runs] for one in (base, arm)]
    found = [(SPEED, speed_contrast(base, arm, common=common))]
    if any((log.config or {}).get("kind") in NO_TRAINING for side in logs for log in side):
        return found
    names = ["loss"]
    if all(any("validation_loss" in one for one in log.evaluations) for s in logs for log in s):
        names.append("validation_loss")
    for name in names:
        compared = Compared(of=name, by=by, margin=margin)
        found.append((compared.quantity, loss_contrast(logs[0], logs[1], compared)))
    qualities = [quality_of(side) for side in logs]
    if qualities[0] is not None and qualities[1] is not None:
        found.append((FID, quality_contrast(qualities[0], qualities[1])))
    return found


def _differs(base: Arm, arm: Arm, quantity: Quantity) -> str:
    logs = base.runs[0].log, arm.runs[0].log
    return attributed(*logs, of="clock" if quantity is SPEED else "loss")


def differences_of(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return a row per difference of each arm from the first."""
    return [{"run": arm.name, **row} for arm in arms[1:] for row in difference_rows(arms[0], arm)]
