"""Which cells of a study are settled against the first one, so that more repeats change nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measure.cost import cost_rows
from analysis.measure.loss import pair_curves
from analysis.measure.speed import Arm, measure_rates, why_not_comparable
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, Floats, estimate_fields
from analysis.stats.sequential import Planned, interval_so_far, is_in_reach, repeats_needed, side
from analysis.table import interval_text
from configs.errors import Unreadable
from configs.schema.study import FEWEST_REPEATS
from runs.attempt.pruning import DECIDED, skip, waiting
from runs.folder import RunFolder
from runs.state.fold import run_state
from runs.study_folder import StudyFolder, StudyRow

UNDECIDED, OUT_OF_REACH = "undecided", "out of reach"
# For each quantity the words for a ratio below 1, above 1, and within the margin of 1.
WORDS = {
    "rate": {-1: "slower", 1: "faster", 0: "equally fast"},
    "loss": {-1: "lower loss", 1: "higher loss", 0: "same loss"},
}
Pairs = Sequence[tuple[RunLog, RunLog]]
Repeat = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One quantity of a cell over that of the first cell, after `repeats` of both are done.

    The interval of `ratio` holds at any time (`analysis.stats.sequential`). `verdict` is one of
    `WORDS`, `undecided`, or `out of reach` of the repeats of the study; for the last two `needed`
    forecasts the repeats that would settle it, None if that cannot be said.
    """

    cell: str
    quantity: str
    repeats: int
    ratio: Estimate | None
    verdict: str
    needed: int | None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The contrasts of a study, its runs by cell, and the cells that more repeats cannot change.

    A cell has the name of its first run, and is settled if none of its contrasts is undecided; the
    first cell is if all others are.
    """

    contrasts: tuple[Contrast, ...]
    cells: Mapping[str, tuple[StudyRow, ...]]
    settled: frozenset[str]


def decide(study: StudyFolder, logs: Sequence[RunLog]) -> Decision:
    """Return what the runs of a study settle so far, by its own margin.

    The quantities are the rate and, if the seed is an axis, the loss where cells can be compared by
    it: `validation_loss` if both evaluate it, otherwise the training loss.
    """
    settings, cells = study.study(), _cells(study.in_grid_order())
    by_name = {log.path.name: log for log in logs}
    runs = {
        name: {_repeat(row): by_name.get(row.cell) for row in rows} for name, rows in cells.items()
    }
    first, *others = cells
    quantities = list(WORDS) if len(settings.axes.get("seed", ())) > 1 else ["rate"]
    planned = Planned(
        contrasts=len(others) * len(quantities),
        least=FEWEST_REPEATS,
        most=max(map(len, cells.values())),
        margin=settings.margin,
    )
    pairs = {name: _done_pairs(runs[first], runs[name]) for name in others}
    rates = {name: _rates(pairs[name]) for name in others}
    arms = [max((both[1] for both in rates.values()), key=len, default=np.empty(0))]
    arms += [both[0] for both in rates.values()]
    contrasts = []
    for name in others:
        contrasts.append(_contrast(name, "rate", rates[name], planned, cells=arms))
        losses = _losses(pairs[name]) if "loss" in quantities else None
        if losses is not None:
            contrasts.append(_contrast(name, "loss", losses, planned))
    still_open = {one.cell for one in contrasts if one.verdict == UNDECIDED}
    still_open |= {first} if still_open else set()
    return Decision(contrasts=tuple(contrasts), cells=cells, settled=frozenset(cells) - still_open)


def _cells(rows: Sequence[StudyRow]) -> dict[str, tuple[StudyRow, ...]]:
    """Return the repeats of each cell, over seeds too, in the order of running."""
    groups: dict[str, list[StudyRow]] = {}
    for row in rows:
        levels = {axis: level for axis, level in row.levels.items() if axis != "seed"}
        groups.setdefault(json.dumps(levels), []).append(row)
    return {
        group[0].cell: tuple(sorted(group, key=lambda row: row.order)) for group in groups.values()
    }


def _repeat(row: StudyRow) -> Repeat:
    return row.repeat, json.dumps(row.levels.get("seed"))


def _done_pairs(
    first: Mapping[Repeat, RunLog | None], other: Mapping[Repeat, RunLog | None]
) -> Pairs:
    """Return the repeats that both cells have done, in order, up to one that may still be done.

    Which repeats are compared must not depend on which of them ends first.
    """
    pairs = []
    for repeat in (repeat for repeat in first if repeat in other):
        a, b = first[repeat], other[repeat]
        if a is None or b is None or a.state.is_open or b.state.is_open:
            break
        if a.state.is_done and b.state.is_done:
            pairs.append((a, b))
    return pairs


def _rates(pairs: Pairs) -> Floats:
    """Return the logs of images (else steps) per second, of the cell and the first one [2, n]."""
    measured = measure_rates([log for pair in pairs for log in pair])
    below, above = measured[::2], measured[1::2]
    if not pairs or why_not_comparable(Arm(runs=tuple(below)), Arm(runs=tuple(above))):
        return np.empty((2, 0))
    has_images = all(run.images_per_s for run in measured)
    rates = np.array(
        [
            [
                (run.images_per_s if has_images else run.rate and run.rate.value) or np.nan
                for run in arm
            ]
            for arm in (above, below)
        ]
    )
    return np.log(rates[:, ~np.isnan(rates).any(axis=0)])


def _losses(pairs: Pairs) -> Floats | None:
    """Return the log ratios of the losses by seed [1, n]; None if losses are not comparable."""
    by_seed = {(a.config or {}).get("seed"): (a, b) for a, b in reversed(pairs)}
    try:
        return np.array([[_log_ratio(a, b) for a, b in reversed(by_seed.values())]])
    except Unreadable:
        return None


def _log_ratio(first: RunLog, other: RunLog) -> float:
    """Return that of the last evaluations, else the mean one of the training losses."""
    try:
        pair = pair_curves(first, other, of="validation_loss")
        pair = pair_curves(first, other, of="validation_loss", after=pair.x[-1])
    except Unreadable:
        pair = pair_curves(first, other)
    if pair.log_ratio is None:
        raise Unreadable(f"{first.name} and {other.name}: a loss is not positive")
    return pair.log_ratio.value


def _contrast(
    cell: str, quantity: str, values: Floats, planned: Planned, *, cells: Sequence[Floats] = ()
) -> Contrast:
    ratio, needed = interval_so_far(values, planned, cells=cells), None
    where = side(ratio, margin=planned.margin) if ratio else None
    verdict = UNDECIDED if where is None else WORDS[quantity][where]
    if ratio and where is None:
        needed = repeats_needed(values, planned, cells=cells)
        verdict = UNDECIDED if is_in_reach(values, planned, cells=cells) else OUT_OF_REACH
    return Contrast(
        cell=cell,
        quantity=quantity,
        repeats=values.shape[1],
        ratio=ratio,
        verdict=verdict,
        needed=needed,
    )


def contrast_row(found: Contrast) -> dict[str, Any]:
    """Return one row of the table of contrasts; unknown values are None."""
    return {
        "cell": found.cell,
        "quantity": found.quantity,
        "repeats": found.repeats,
        **estimate_fields("ratio", found.ratio),
        "verdict": found.verdict,
        "needed": found.needed,
    }


def spent(found: Decision, logs: Sequence[RunLog]) -> str:
    """Return a sentence on the runs that the study made and did not need, in hours of its ranks.

    A run that was not made would have cost the mean of its cell.
    """
    runs = {log.path.name: log for log in logs}
    made, made_h, skipped, skipped_h, begun_h = 0, 0.0, 0, 0.0, 0.0
    for rows in found.cells.values():
        of_cell = [runs[row.cell] for row in rows if row.cell in runs]
        done = [log for log in of_cell if log.state.is_done]
        hours = [row["gpu_hours"] or 0.0 for row in cost_rows(done, {})]
        begun_h += sum(row["gpu_hours"] or 0.0 for row in cost_rows(of_cell, {})) - sum(hours)
        spared = sum(log.state.reason == DECIDED for log in of_cell)
        made, made_h, skipped = made + len(done), made_h + sum(hours), skipped + spared
        skipped_h += spared * sum(hours) / max(1, len(hours))
    saved = skipped_h / ((made_h + begun_h + skipped_h) or 1)
    begun = f", and others that are not done {begun_h:.3g}" if begun_h else ""
    return (
        f"{made} runs took {made_h:.3g} rank-hours{begun}; {skipped} more that could change no "
        f"verdict were not made, about {skipped_h:.3g} rank-hours ({saved:.0%} of all)"
    )


def end_settled(study: StudyFolder, found: Decision) -> list[str]:
    """Skip the waiting runs of the settled cells, stop the running ones; return a line for each.

    A running one saves, and stays stopped. Processes that do so at once skip a run twice, which
    changes nothing, so there is no lock.
    """
    cell_of = {row.cell: name for name, rows in found.cells.items() for row in rows}
    ended = []
    for run in waiting(study):
        cell = cell_of[run.name]
        if cell in found.settled:
            own = [_phrase(one) for one in found.contrasts if one.cell == cell]
            message = f"decided: {', '.join(own) or 'all other cells are settled'}"
            if skip(run, proof=RunFolder(study.cell(cell)), reason=DECIDED, message=message):
                ended.append(f"skipped: {run.name}")
    for name in (name for name, cell in cell_of.items() if cell in found.settled):
        run = RunFolder(study.cell(name))
        if run_state(run).is_started and not run.stop_file.exists():
            run.stop_file.touch()
            ended.append(f"stopped: {name}")
    return ended


def _phrase(found: Contrast) -> str:
    assert found.ratio is not None
    ends = interval_text(found.ratio.low, found.ratio.high, ".4g")
    return f"{found.verdict} ({found.ratio.value:.4g}x {ends} after {found.repeats} repeats)"
