"""Compare arms with the first one on speed, loss and quality: one family of verdicts."""

from collections.abc import Sequence
from typing import Any, Literal

from analysis.measure.arms import Arm, group_arms
from analysis.measure.differences import difference_rows
from analysis.measure.loss import FID, FID_MARGIN, Compared, loss_contrast, loss_scatter
from analysis.measure.loss_curve import NO_TRAINING, held_out_losses, sense_of
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, speed_contrasts
from analysis.observations import attributed
from analysis.read.run_log import RunLog
from analysis.stats.contrast import of_cells, scatter_of_single
from analysis.stats.replicates import Contrast, Quantity
from analysis.verdict import Comparison, verdicts
from configs.schema import KINDS
from configs.table import Row


def arms_of(logs: Sequence[RunLog]) -> list[Arm]:
    """Return runs that differ in their seed only as one arm; if that leaves one, each is alone."""
    runs = measure_rates(logs)
    arms = group_arms(runs)
    return arms if len(arms) > 1 else [Arm(runs=(run,)) for run in runs]


def compare_arms(
    arms: Sequence[Arm], losses: Sequence[Compared], *, if_known: bool, as_cells: bool
) -> list[dict[str, Any]]:
    """Return a row for each arm but the first and each quantity: speed and `losses`.

    Or only what both arms have, `if_known`. A row has the verdict and what else differs. Two runs
    are compared as they are. A single run `as_cells` stands for its cell, and its interval allows
    for the scatter between runs.
    """
    base, *others = arms
    first, *sides = (arm.logs for arm in arms)
    scatters = [loss_scatter([first, *sides], one) for one in losses]
    made: list[tuple[Arm, Quantity, Contrast]] = []
    for arm, side, speed in zip(others, sides, speed_contrasts(arms), strict=True):
        made.append((arm, SPEED, speed))
        made += [
            (arm, one.quantity, loss_contrast(first, side, one, scatter=scatter))
            for one, scatter in zip(losses, scatters, strict=True)
            if not if_known or _have(one.of, [first, side])
        ]
    for quantity in {quantity: None for _, quantity, _ in made} if as_cells else ():
        scatter = scatter_of_single([one for _, of, one in made if of == quantity])
        made = [
            (arm, of, of_cells(one, of, scatter=scatter) if of == quantity else one)
            for arm, of, one in made
        ]
    found = verdicts(
        [
            Comparison(base=base.name, arm=arm.name, quantity=quantity, contrast=one)
            for arm, quantity, one in made
        ]
    )
    return [
        {"run": arm.name, "against": base.name, "quantity": quantity.name}
        | verdict
        | {"differs": attributed(first, arm.logs, of=_affected(quantity), word=verdict["word"])}
        for (arm, quantity, _), verdict in zip(made, found, strict=True)
    ]


def _affected(quantity: Quantity) -> Literal["clock", "loss"]:
    return "clock" if quantity.is_speed else "loss"


def _have(name: str, sides: Sequence[Sequence[RunLog]]) -> bool:
    if name == "loss":
        logs = (log for side in sides for log in side)
        return not any((log.config or {}).get("kind") in NO_TRAINING for log in logs)
    return all(any(name in one for log in side for one in log.evaluations) for side in sides)


def compare_all(arms: Sequence[Arm], *, by: str, margin: float) -> list[dict[str, Any]]:
    """Return the rows of `compare` and of a report, on every quantity.

    Of more than two arms a single run stands for its cell.
    """
    logs = [run.log for arm in arms for run in arm.runs]
    names = ("loss", *held_out_losses(logs), *_scores_of_others(logs))
    losses = [Compared(of=of, by=by, margin=margin) for of in names]
    losses.append(Compared(of=FID, by=by, margin=FID_MARGIN))
    return compare_arms(arms, losses, if_known=True, as_cells=len(arms) > 2)


def _scores_of_others(logs: Sequence[RunLog]) -> list[str]:
    """Return the evaluations but losses of which more, or less, is better, of other trainers."""
    kinds = {(log.config or {}).get("kind") for log in logs}
    found = {name for log in logs for one in log.evaluations for name in one}
    known = (name for name in found if sense_of(name) != "unknown")
    scores = sorted(name for name in known if "loss" not in name.lower())
    return [] if kinds & (KINDS.keys() - {"command"}) else scores


def told(row: Row) -> str:
    """Return the verdict of a row, and the cause of its ratio."""
    cause = row["differs"]
    attributed = f" {cause[:1].upper()}{cause[1:]}." if row["word"] != "not compared" else ""
    return f"{row['verdict']}.{attributed}"


def differences_of(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return a row per difference of each arm from the first."""
    base, *others = arms
    return [
        {"run": arm.name, **row}
        for arm in others
        for row in difference_rows(base.runs[0].log, arm.runs[0].log)
    ]
