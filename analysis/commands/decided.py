"""`cells --decided`: what a study has settled so far, by intervals that hold at any time."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.measure.arms import Arm
from analysis.measure.loss import Compared, loss_contrast, told_selected, why_doubtful
from analysis.measure.loss_curve import held_out_losses
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, speed_contrast
from analysis.observations import group_alike, ran_at_once, seed_of
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from analysis.stats.judge import Judgement
from analysis.stats.replicates import Contrast, Quantity, Unit, Word
from analysis.stats.sequential import Planned, interval_so_far, is_in_reach, side
from analysis.study.cells import node_of_one_side
from analysis.table import put, remark
from analysis.verdict import Comparison, ratio_text
from configs.errors import Unreadable
from configs.schema.study import FEWEST_REPEATS
from runs.attempt.pruning import skip, waiting
from runs.folder import RunFolder
from runs.state.fold import run_state
from runs.study_folder import StudyFolder, StudyRow, is_study_folder

EXAMPLE = "ditbench cells logs/layouts-1120 --decided"
UNDECIDED, OUT_OF_REACH = "undecided", "out of reach of the planned repeats"
QUANTITIES = ("rate", "loss")
Pairs = Sequence[tuple[RunLog, RunLog]]
Repeat = tuple[int, str]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the switch that ends what is settled."""
    parser.add_argument(
        "--skip",
        action="store_true",
        help="end the waiting and running repeats that can change no verdict",
    )


def run(args: argparse.Namespace) -> int:
    """Print a row per cell and quantity; return 1 while one of them is undecided."""
    [path, *others] = map(Path, args.paths)
    if not path.exists():
        raise Unreadable(f"{path}: no such file or folder")
    if others or not is_study_folder(path):
        raise Unreadable(f"{args.paths[-1]}: --decided takes one folder of a study")
    study = StudyFolder(path)
    found = decide(study, read_logs([str(path)]))
    put(found.found, args)
    if args.skip:
        remark(end_settled(study, found))
    return 0 if len(found.settled) == len(found.cells) else 1


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdicts of a study so far, its runs by cell, and the cells that are settled.

    A row of `found` is the verdict on a quantity of a cell against the first one, by the repeats
    done so far; its interval holds at any time (`analysis.stats.sequential`), for all of the study.
    `why` is `UNDECIDED`, `OUT_OF_REACH` or that nodes are mixed up with cells, None if the repeats
    settle it. A cell has the name of its first run, and is settled if the planned repeats can
    change none of its verdicts; the first cell is if all others are.
    """

    found: tuple[dict[str, Any], ...]
    cells: Mapping[str, Sequence[StudyRow]]
    settled: frozenset[str]


def decide(study: StudyFolder, logs: Sequence[RunLog]) -> Decision:
    """Return what the runs of a study settle so far, by its own margin.

    The quantities are the rate and, if the seed is an axis, the loss where cells can be compared by
    it: a held-out one if both evaluate it, otherwise the training loss.
    """
    settings = study.study()
    groups = group_alike(study.in_grid_order(), _levels)
    cells = {group[0].cell: sorted(group, key=lambda row: row.order) for group in groups}
    by_name = {log.path.name: log for log in logs}
    runs = {
        name: {_repeat(row): by_name.get(row.cell) for row in rows} for name, rows in cells.items()
    }
    first, *others = cells
    quantities = QUANTITIES if len(settings.axes.get("seed", ())) > 1 else QUANTITIES[:1]
    planned = Planned(
        contrasts=len(others) * len(quantities),
        least=FEWEST_REPEATS,
        most=max(map(len, cells.values())),
        margin=settings.margin,
    )
    pairs = {name: _done_pairs(runs[first], runs[name]) for name in others}
    at_once = ran_at_once(logs)
    rates = {name: _rates(pairs[name], at_once) for name in others}
    alike, found = list(rates.values()), []
    for name in others:
        shared = node_of_one_side(pairs[name])
        mixed = shared and f"repeats of one cell share {shared}, of the other they do not"
        found.append(_row(first, name, SPEED, rates[name], planned, cells=alike, refused=mixed))
        losses = _losses(pairs[name]) if "loss" in quantities else None
        if losses is not None:
            doubt = _doubt_of_losses([runs[first], runs[name]], pairs[name])
            found.append(_row(first, name, Compared().quantity, losses, planned, refused=doubt))
    still_open = {row["cell"] for row in found if row["why"] not in (None, OUT_OF_REACH)}
    still_open |= {first} if still_open else set()
    return Decision(found=tuple(found), cells=cells, settled=frozenset(cells) - still_open)


def _levels(row: StudyRow) -> str:
    """Return what the repeats of a cell share, those over seeds too."""
    return json.dumps({axis: level for axis, level in row.levels.items() if axis != "seed"})


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


def _rates(pairs: Pairs, at_once: Mapping[int, str]) -> Floats:
    """Return the logs of the ratios of the rates by repeat [n], in images if all have them.

    What the runs of a repeat share, such as the state of the machine, cancels.
    """
    measured = measure_rates([log for pair in pairs for log in pair])
    found = [
        speed_contrast(Arm(runs=(base,)), Arm(runs=(run,)), at_once=at_once)
        for base, run in zip(measured[::2], measured[1::2], strict=True)
    ]
    return np.array([one.mean.value for one in found if one.mean])


def _losses(pairs: Pairs) -> Floats | None:
    """Return the log ratios of the losses by seed [n]; None if losses are not comparable."""
    by_seed = {seed_of(a): (a, b) for a, b in reversed(pairs)}
    found = [_loss_ratio(a, b) for a, b in reversed(by_seed.values())]
    return np.array(found) if found and None not in found else None


def _doubt_of_losses(cells: Sequence[Mapping[Repeat, RunLog | None]], pairs: Pairs) -> str | None:
    """Return which run of two cells became NaN, or was worse than those that are done."""
    for runs, counted in zip(cells, zip(*pairs, strict=True), strict=True):
        logs = [log for log in runs.values() if log is not None]
        doubts = (why_doubtful(log) for log in logs)
        if doubt := next(filter(None, doubts), None) or told_selected(logs, counted):
            return doubt
    return None


def _loss_ratio(first: RunLog, other: RunLog) -> float | None:
    """Return the log ratio of the last evaluations, else of the training losses at the end."""
    for of in (*held_out_losses([first, other]), "loss"):
        found = loss_contrast([first], [other], Compared(of=of))
        if found.mean is not None:
            return found.mean.value
    return None


def _row(
    base: str, cell: str, quantity: Quantity, values: Floats, planned: Planned, *,
    cells: Sequence[Floats] = (), refused: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    ratio = None if refused else interval_so_far(values, planned, cells=cells)
    where = side(ratio, margin=planned.margin) if ratio else None
    word: Word = "undetermined"
    why: str | None = refused or UNDECIDED
    if where is not None:
        word, why = quantity.word(where) if where else "same", None
    elif ratio is not None and not is_in_reach(values, planned, cells=cells):
        why = OUT_OF_REACH
    unit: Unit = "pass" if quantity is SPEED else "seed"
    contrast = Contrast(mean=None, unit=unit, n=len(values), is_claim=True)
    judged = Judgement(word=word, why=why, ratio=ratio, comparisons=planned.contrasts)
    compared = Comparison(base=base, arm=cell, quantity=quantity, contrast=contrast)
    name = "rate" if quantity is SPEED else "loss"
    return {"cell": cell, "quantity": name} | compared.fields(judged)


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
            own = [_phrase(row) for row in found.found if row["cell"] == cell]
            message = f"decided: {', '.join(own) or 'all other cells are settled'}"
            if skip(run, proof=RunFolder(study.cell(cell)), message=message):
                ended.append(f"skipped: {run.name}")
    for name in (name for name, cell in cell_of.items() if cell in found.settled):
        run = RunFolder(study.cell(name))
        if run_state(run).is_started and not run.stop_file.exists():
            run.stop_file.touch()
            ended.append(f"stopped: {name}")
    return ended


def _phrase(row: Mapping[str, Any]) -> str:
    ratio = ratio_text(row["ratio"], row["low"], row["high"])
    return f"{row['why'] or row['word']} ({ratio} after {row['n']} repeats)"
