"""Compare arms with the first one on speed, loss and quality: one family of verdicts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.measure.loss import Compared, loss_contrast
from analysis.measure.loss_curve import NO_TRAINING, held_out_losses
from analysis.measure.quality import FID, quality_contrast, quality_of
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, Arm, group_arms, speed_contrasts
from analysis.measure.speed_table import difference_rows
from analysis.observations import attributed
from analysis.read.run_log import RunLog
from analysis.stats.contrast import Contrast, Quantity, of_cells
from analysis.stats.judge import Judgement, judge
from analysis.verdict import verdict_fields


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The judgement of an arm against the first on one quantity, among all of a table."""

    base: Arm
    arm: Arm
    quantity: Quantity
    judgement: Judgement

    def fields(self, *, prefix: str = "") -> dict[str, Any]:
        """Return the judgement as fields of a row."""
        names = {"base": self.base.name, "arm": self.arm.name}
        return verdict_fields(self.judgement, self.quantity, prefix=prefix, **names)


def arms_of(logs: Sequence[RunLog]) -> list[Arm]:
    """Return runs that differ in their seed only as one arm; if that leaves one, each run alone."""
    runs = measure_rates(logs)
    arms = group_arms(runs)
    return arms if len(arms) > 1 else [Arm(runs=(run,)) for run in runs]


def compare_arms(
    arms: Sequence[Arm], losses: Sequence[Compared], *, quality: bool, as_cells: bool
) -> list[Comparison]:
    """Return the comparisons of each arm but the first in speed and `losses`.

    With `quality` also in FID, and only in what both arms have. Two runs are
    compared as they are. A single run `as_cells` stands for its cell, and its interval allows for
    the scatter between runs.
    """
    base, *others = arms
    made: list[tuple[Arm, Quantity, Contrast]] = []
    for arm, speed in zip(others, speed_contrasts(arms), strict=True):
        made.append((arm, SPEED, speed))
        sides = [[run.log for run in one.runs] for one in (base, arm)]
        made += [
            (arm, one.quantity, loss_contrast(sides[0], sides[1], one))
            for one in losses
            if not quality or _have(one.of, sides)
        ]
        distances = [quality_of(side) for side in sides] if quality else [None]
        if distances[0] is not None and distances[-1] is not None:
            made.append((arm, FID, quality_contrast(distances[0], distances[-1])))
    pairs = [(of_cells(one, of) if as_cells else one, of) for _, of, one in made]
    return [
        Comparison(base=base, arm=arm, quantity=of, judgement=judgement)
        for (arm, of, _), judgement in zip(made, judge(pairs), strict=True)
    ]


def _have(name: str, sides: Sequence[Sequence[RunLog]]) -> bool:
    logs = [log for side in sides for log in side]
    if name == "loss":
        return not any((log.config or {}).get("kind") in NO_TRAINING for log in logs)
    return all(any(name in one for one in log.evaluations) for log in logs)


def compare_all(arms: Sequence[Arm], *, by: str, margin: float) -> list[Comparison]:
    """Return the comparisons of `compare` and of a report, on every quantity.

    Of more than two arms a single run stands for its cell.
    """
    logs = [run.log for arm in arms for run in arm.runs]
    names = ("loss", *held_out_losses(logs))
    losses = [Compared(of=of, by=by, margin=margin) for of in names]
    return compare_arms(arms, losses, quality=True, as_cells=len(arms) > 2)


def axis_of(logs: Iterable[RunLog]) -> str:
    """Return what losses are aligned on: images if all runs record them, else steps."""
    return "images" if all((log.column("images") > 0).any() for log in logs) else "step"


def comparison_rows(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return a row per comparison, with what else differs between its arms."""
    return [
        {"run": one.arm.name, "against": one.base.name, "quantity": one.quantity.name}
        | one.fields()
        | {"differs": _differs(one)}
        for one in found
    ]


def _differs(one: Comparison) -> str:
    sides = [[run.log for run in arm.runs] for arm in (one.base, one.arm)]
    return attributed(sides[0], sides[1], of="clock" if one.quantity is SPEED else "loss")


def differences_of(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return a row per difference of each arm from the first."""
    return [{"run": arm.name, **row} for arm in arms[1:] for row in difference_rows(arms[0], arm)]
