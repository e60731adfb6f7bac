"""Turn rows into run logs: tell ranks, bars and runs apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.read.attempts import MOST_RESUMES, are_mixed, attempts
from analysis.read.batch import PART, counts_parts, with_batch
from analysis.read.clock import timed
from analysis.read.columns import Rows
from analysis.read.evaluations import evaluation_records, with_evaluated
from analysis.read.run_log import Ints, RunLog, not_finite
from analysis.read.vocabulary import is_mean
from analysis.stats.intervals import Floats
from configs.errors import Unreadable

# Columns that say where a row stands, not what it measures.
_PLACES = frozenset(["step", "line", "place", "rank", "of", "epochs", "pause"])
MOST_ATTEMPTS, MOST_RUNS = 10_000, 1000
# The newest row of a table is first if its steps fall so often.
REVERSED = 0.9


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Rows with a `step`, what a step is (`RunLog.axis`), and evaluations that are no rows.

    `without_unit` are the times that name none, and `loss_name` is what the log calls the loss.
    """

    rows: Rows
    axis: str = "step"
    remarks: Sequence[str] = ()
    uncertain: Mapping[str, str] = field(default_factory=dict)
    without_unit: frozenset[str] = frozenset()
    loss_name: str = ""
    evaluations: tuple[Mapping[str, float], ...] = ()


def one_rank(rows: Rows) -> tuple[Rows, list[str]]:
    """Return the rows of the lowest rank if several print the same, and a remark on it."""
    rank = rows["rank"]
    named = np.unique(rank[~np.isnan(rank)])
    if len(named) < 2:
        return rows, []
    with_loss = [one for one in named if not np.isnan(rows["loss"][rank == one]).all()]
    first = min(with_loss or named)
    remark = f"{len(named)} ranks print; rank {int(first)} is read"
    return rows.take((rank == first) | np.isnan(rank)), [remark]


def main_group(rows: Rows) -> Rows:
    """Return the training's bar: of those with losses, if any, the one that lasted longest."""
    group, passed = rows["of"], np.nan_to_num(rows["bar_s"])
    if not len(rows) or (group == group[0]).all():
        return rows
    trained = np.unique(group[~np.isnan(rows["loss"])])
    groups = trained if len(trained) else np.unique(group)
    best = max(groups[-1000:], key=lambda g: (float(passed[group == g].max()), g))
    return rows.take(group == best)


def assemble(
    placed: Placed, *, path: Path, name: str, kind: str, is_text: bool = True
) -> list[RunLog]:
    """Return the runs in the rows of a file: a restart at or below the first step is another.

    Rows without a loss, where others have one, belong to the attempt that they stand in.
    """
    rows = placed.rows
    if not len(rows):
        return []
    if len(rows) > 2 and (np.diff(rows["step"]) < 0).mean() > REVERSED:
        rows = rows.take(np.arange(len(rows))[::-1])
    step = rows["step"].astype(np.int64)
    main = np.flatnonzero(_is_main(rows))
    begun = main[attempts(step[main], _clock(rows)[main]).begun]
    firsts = [0]
    lowest = int(step[main[0]])
    for row in begun.tolist():
        if step[row] <= lowest:
            firsts.append(row)
            lowest = int(step[row])
    if len(firsts) > MOST_RUNS:
        raise Unreadable(
            f"{path}: its steps begin again {len(firsts) - 1} times, too often for runs; name the "
            "step with --pattern or --columns"
        )
    parts = [rows.take(np.arange(*ends)) for ends in pairwise([*firsts, len(rows)])]
    logs = []
    for number, part in enumerate(parts, start=1):
        run_name = f"{name}#{number}" if len(parts) > 1 else name
        logs += _log(part, placed, path=path, name=run_name, kind=kind)
    told = [*placed.remarks]
    if is_text and placed.axis != "step":
        is_unit = placed.axis == "unit"
        what = "units: the log does not say what step they are" if is_unit else f"{placed.axis}s"
        told.append(f"the axis counts {what}")
    logs = [
        replace(log, remarks=(*(f"{log.name}: {remark}" for remark in told), *log.remarks))
        for log in logs
    ]
    if len(logs) > 1:
        remark = f"{name}: the steps begin again {len(logs) - 1} times: {len(logs)} runs in a file"
        ends = {int(log.step[-1]) for log in logs[:-1]}
        if len(logs) > 2 and len(ends) == 1 and "epoch" not in rows:
            remark += ", which may be epochs of one run: they end at the same step"
        logs[0] = replace(logs[0], remarks=(remark, *logs[0].remarks))
    return logs


def _is_main(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows [n] are of the training: those with a loss, if there are some."""
    has_loss = ~np.isnan(rows["loss"])
    return has_loss if has_loss.any() else np.ones(len(rows), dtype=bool)


def _clock(rows: Rows) -> Floats:
    """Return the clock by which a row printed twice differs from a step done twice."""
    names = (name for name in ("time", "bar_s", "elapsed_s", "train_s") if name in rows)
    clock = rows[next(names, "")]
    return np.where(np.isinf(clock), np.nan, clock)


def _log(rows: Rows, placed: Placed, *, path: Path, name: str, kind: str) -> list[RunLog]:
    """Return the run in rows, none if it has no value."""
    step, is_main = rows["step"].astype(np.int64), _is_main(rows)
    main = np.flatnonzero(is_main)
    found = attempts(step[main], _clock(rows)[main])
    # Rows beside the training's are of the attempt before them, and go with the steps done again.
    of = np.zeros(len(rows), dtype=np.int64)
    of[main] = found.of
    beside = np.flatnonzero(~is_main)
    begun = main[found.begun]
    of[beside] = 1 + np.searchsorted(begun, beside, side="right")
    for number, row in enumerate(begun[:MOST_ATTEMPTS].tolist(), start=1):
        of[beside[(beside < row) & (step[beside] >= step[row]) & (of[beside] <= number)]] = 0
    kept = np.flatnonzero(of)
    kept = kept[np.argsort(step[kept], kind="stable")]
    place = np.cumsum(np.diff(step[kept], prepend=-1) != 0) - 1
    taken = rows.take(kept)
    merged = taken.merged(place)
    merged, always_evaluates = with_evaluated(merged, taken, place, is_main[kept])
    of = of[kept][np.append(np.diff(place) != 0, True)]
    remarks = []
    if found.begun:
        first = int(rows["line"][begun[0]])
        times = f" {len(found.begun)} times, first" if len(found.begun) > 1 else ""
        remarks.append(f"the step falls{times} at line {first}: {found.count} attempts")
    if found.twice:
        remarks.append(
            f"{found.twice} rows repeat a step; the last of each is read, and the log does not say "
            "whether the step was printed twice or done again"
        )
    mixed: dict[str, str] = {}
    if are_mixed(step[main]):
        why = "may be of two programs that write to one file: steps fall and are back at once"
        mixed = dict.fromkeys(("step", "loss", "time"), why)
    elif len(found.begun) > MOST_RESUMES:
        mixed = {"step": "may begin again with each epoch: it falls too often for resumes"}
    merged, doubts = timed(merged, axis=placed.axis, without_unit=placed.without_unit)
    facts: dict[str, Any] = {}
    if always_evaluates:
        facts["always_evaluates"] = True
        remarks.append("every interval holds an evaluation, which its time counts")
    if is_mean(placed.loss_name) and placed.axis != "epoch":
        facts["mean_loss"] = placed.loss_name
        remarks.append(f"the loss is {placed.loss_name!r}: a mean over what was trained before")
    if "batch" not in merged and _is_size(merged["batch_number"], merged["step"]):
        merged = merged.replace(batch=merged["batch_number"])
    is_whole = "global_batch" in merged
    if is_whole:
        merged = merged.replace(batch=merged["global_batch"])
    elif "batch" in merged and any(map(counts_parts, merged.columns)):
        merged = merged.replace(batch=np.full(len(merged), np.nan))
        remarks.append(PART)
    log = make_log(merged, of, path=path, name=name, kind=kind)
    if not len(log) or not log.values:
        return []
    finite = np.isfinite(log.column("loss")).sum()
    lost = int(np.isinf(merged["loss"]).sum())
    if lost and finite:
        remarks.append(f"{lost} of {lost + finite} losses are not finite")
    uncertain = {**doubts, **placed.uncertain, **mixed}
    if found.twice and 2 * min(found.twice, _other_losses(rows)) > len(log):
        uncertain["loss"] = "most steps are printed more than once, each time with another loss"
    elif found.twice and _other_losses(rows.take(rows["step"] == rows["step"][is_main].max())):
        uncertain["loss"] = "the last step is printed more than once, each time with another loss"
    if found.twice and _is_rounded(log.step):
        uncertain.setdefault("step", "rounded to a few digits, not known exactly")
    at = log.step[np.isfinite(log.column("loss"))]
    if "bar_s" in rows and len(at) and at[-1] < log.step[-1]:
        remarks.append(f"the last loss is of step {at[-1]:,}; a later one may be in the bars")
    remarks += [f"{what}: {why}" for what, why in uncertain.items()]
    log = replace(
        log,
        attempts=found.count,
        axis=placed.axis,
        facts=facts,
        uncertain=uncertain,
        remarks=tuple(f"{name}: {remark}" for remark in remarks),
    )
    batch = _only(merged["batch"]) if placed.axis == "step" else None
    return [log if batch is None else with_batch(log, batch, is_whole=is_whole)]


def _other_losses(rows: Rows) -> int:
    """Return how many losses are printed for steps beyond the first one of each."""
    kept = np.isfinite(rows["loss"])
    pairs = np.unique(np.stack([rows["step"][kept], rows["loss"][kept]]), axis=1)
    return pairs.shape[1] - len(np.unique(pairs[0]))


def _is_rounded(step: Ints) -> bool:
    """Whether the longest steps have so few digits that they rise by more: 980, 990, 1000, 1100."""
    top = 10 ** (len(str(int(step.max(initial=0)))) - 1)
    rises, longest = np.diff(step[step < top]), step[step >= top]
    if len(rises) < 2 or len(longest) < 3:
        return False
    digits = max(len(str(one).rstrip("0")) for one in longest.tolist())
    return bool(np.median(rises) < 10 * top / 10**digits)


def _is_size(batch: Floats, step: Floats) -> bool:
    """Whether a `batch` is the same in all records, and not the distance between them.

    Another counts batches: `batch 40 global_step 440`.
    """
    size = _only(batch)
    return size is not None and not (np.diff(step) == size).all()


def _only(batch: Floats) -> int | None:
    """Return the batch size if every row that has one has the same whole one."""
    found = np.unique(batch[np.isfinite(batch)])
    is_whole = len(found) == 1 and found[0] > 0 and found[0] == np.floor(found[0])
    return int(found[0]) if is_whole else None


def make_log(rows: Rows, attempt: Ints, *, path: Path, name: str, kind: str) -> RunLog:
    """Return the log of rows in the order of their steps, one a step."""
    step, line = rows["step"].astype(np.int64), np.nan_to_num(rows["line"]).astype(np.int64)
    values = {
        column: np.where(np.isfinite(numbers), numbers, np.nan)
        for column, numbers in rows.columns.items()
        if column == "loss" or (column not in _PLACES and np.isfinite(numbers).any())
    }
    return RunLog(
        name=name,
        path=path,
        format=kind,
        step=step,
        attempt=attempt,
        line=line,
        values=values,
        events=not_finite(step, line, rows["loss"]),
        evaluations=evaluation_records(step, line, values),
    )
