"""Read a text log by the kind of line that explains most of it, or by a user's pattern."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.read.assemble import Placed, assemble
from analysis.read.batch import PART, with_batch
from analysis.read.columns import distinct
from analysis.read.epochs import on_axis
from analysis.read.run_log import RunLog
from analysis.read.text.candidates import Candidate, candidates_of, has_fractions
from analysis.read.text.judge import Judged, judge
from analysis.read.text.kinds import Text, read_kinds
from analysis.read.text.lines import HOLE
from analysis.read.text.pattern import compiled, matched_rows
from analysis.read.text.phases import evaluations_apart, why_below_evaluations
from analysis.read.text.pieces import pieces
from analysis.read.text.place import placed_rows
from analysis.read.text.settings import Settings, settings_above
from analysis.read.vocabulary import is_loss, meaning

FEWEST_WITHOUT_STEP = 5
# Losses of two kinds of lines that differ by less are one.
ALIKE = 0.02
_OF_TRAINING = re.compile(r"(?i)train|epoch|step|iter")
# A line with one of these alone in its log is a configuration.
_CONFIG = re.compile(
    r"(?i:namespace\(|\bargs?\b|config|hyper-?param|(?<![a-z])(?:seed|n(?:um)?_?workers|dropout"
    r"|momentum|weight_?decay|batch_?size|hidden|layers|gamma|scheduler|optim|max_|n_|num_))"
)


def read_text(path: Path, *, name: str, pattern: str | None = None) -> list[RunLog]:
    """Return the runs in a text file by the best candidate, or by a user's pattern alone."""
    logs = _read_kinds(path, name) if pattern is None else _read_pattern(path, pattern, name=name)
    parts = [(log, log.line[log.attempt == n]) for log in logs for n in np.unique(log.attempt)]
    parts.sort(key=lambda part: int(part[1].min()))
    spans = [(int(line.min()), int(line.max())) for _, line in parts]
    above = zip(parts, settings_above(pieces(path), spans), strict=True) if spans else ()
    found: dict[int, list[Settings]] = {}
    for (log, _), settings in above:
        found.setdefault(id(log), []).append(settings)
    return [_with_settings(log, found[id(log)]) for log in logs]


def _with_settings(log: RunLog, above: Sequence[Settings]) -> RunLog:
    """Return a log with the settings above all its attempts as its config, and with their batch."""
    first = above[0]
    values = {n: v for n, v in first.values.items() if all(v == one.values.get(n) for one in above)}
    log = replace(log, config=values or None)
    batch = first.batch
    is_alike = all(one.batch == batch for one in above)
    if batch is None or not is_alike or log.global_batch or "batch" in log.values:
        return log
    if any(one.is_part and not one.is_whole for one in above):
        return replace(log, remarks=(*log.remarks, f"{log.name}: {PART}"))
    return with_batch(log, batch, is_whole=first.is_whole)


def _read_kinds(path: Path, name: str) -> list[RunLog]:
    text = read_kinds(pieces(path))
    text.kinds = evaluations_apart(text)
    text.is_of_losses = "loss" in path.name.lower()
    judged = judge_all(text)
    if not judged:
        return []
    best = judged[0]
    told = [*_disagreement(judged), *best.placed.remarks]
    if text.cut:
        told.append(
            f"{text.cut} lines are too long: later steps, losses and sessions may be in their rest"
        )
    below = why_below_evaluations(best.candidate.rows, text.pauses)
    doubts = dict.fromkeys(("step", "loss"), below) if below else {}
    uncertain = {**_without_loss(best), **doubts, **best.placed.uncertain}
    placed = replace(best.placed, remarks=told, uncertain=uncertain)
    logs = assemble(placed, path=path, name=name, kind=best.candidate.name)
    kinds = {side.kind for side in best.candidate.sides} | {best.candidate.kind}
    counts = (sum(kind.count for kind in kinds), text.lines)
    logs = [replace(log, lines_read=counts) for log in logs]
    if logs and (remark := _sessions(best, text, sum(log.attempts for log in logs))):
        logs[0] = replace(logs[0], remarks=(*logs[0].remarks, f"{name}: {remark}"))
    return logs


def _sessions(best: Judged, text: Text, attempts: int) -> str | None:
    """Return a remark if the first line comes again more often than attempts are known.

    One that is a record, or comes once for each, begins no session.
    """
    rows, count = best.placed.rows, len(text.begins)
    records = int(np.isfinite(rows["loss"]).sum())
    has_none = not np.diff(np.searchsorted(rows["place"], text.begins)).all()
    counted = [best.candidate, *(side for side in best.candidate.sides if side.has_step)]
    shapes = [shape for one in counted for shape in one.kind.shapes]
    is_record = any(HOLE.join(shape.gaps) == text.first for shape in shapes)
    if attempts < count and not is_record and (count < records or (count == records and has_none)):
        return f"its first line comes {count} times: there may be as many sessions"
    return None


def _read_pattern(path: Path, pattern: str, *, name: str) -> list[RunLog]:
    rows, lines = matched_rows(pieces(path), compiled(pattern))
    found = on_axis(rows)
    if found is None:
        return []
    rows, axis, uncertain = found
    told = [f"the pattern reads {len(rows):,} of {lines:,} lines"]
    placed = Placed(rows=rows, axis=axis, remarks=told, uncertain=uncertain)
    logs = assemble(placed, path=path, name=name, kind="pattern")
    return [replace(log, lines_read=(len(rows), lines)) for log in logs]


def judge_all(text: Text) -> list[Judged]:
    """Return the candidates that may be the lines of a training, the best first."""
    found = []
    for one in candidates_of(text.kinds, is_of_losses=text.is_of_losses):
        # One line is enough if it names a count and a loss: a training that has just begun.
        is_first = one.has_loss and one.axis != "sample" and not _CONFIG.search(one.kind.sample)
        if one.has_axis and (one.kind.count > 1 or is_first):
            placed = placed_rows(one, text)
            if placed is not None and not _is_config(one, placed):
                found.append(judge(one, placed, numbered=text.numbered))
    kept = [one for one in found if one.score > 0] or _without_count(text)
    return sorted(kept, key=lambda one: (-one.score, one.candidate.rank))


def _is_config(one: Candidate, placed: Placed) -> bool:
    """Whether lines repeat a configuration: `{'epochs': 100, 'batch_size': 16, 'loss': 1.0}`."""
    is_bar_or_one = one.is_bar or one.kind.count == 1
    has_one_step = distinct(placed.rows["step"]) < 2
    return has_one_step and not is_bar_or_one and bool(_CONFIG.search(one.kind.sample))


def _without_count(text: Text) -> list[Judged]:
    """Return lines that name a loss and no step: each is a unit, and its loss is doubtful."""
    found = []
    for one in candidates_of(text.kinds, is_alone=True):
        is_enough = one.kind.count >= FEWEST_WITHOUT_STEP and has_fractions(one)
        if is_enough and is_loss(one.loss_name) and not one.has_axis:
            rows = one.rows.replace(step=np.arange(1.0, len(one.rows) + 1))
            placed = placed_rows(replace(one, rows=rows), text)
            assert placed is not None
            why = "may be that of anything: its lines name neither a step nor an epoch"
            placed = replace(placed, axis="unit", uncertain={"loss": why})
            found.append(judge(one, placed, numbered=text.numbered))
    return found


def _without_loss(best: Judged) -> dict[str, str]:
    """Return a doubt about counts that nothing names as those of a training: no loss, no word."""
    one = best.candidate
    if "loss" in best.placed.rows or any(side.has_loss for side in one.sides):
        return {}
    if one.is_bar:
        is_named = _OF_TRAINING.search(one.kind.head) is not None
    else:
        names = [meaning(field.name)[0] for field in one.kind.fields.values()]
        is_named = not {"step", "epoch", "images"}.isdisjoint(names)
    if is_named:
        return {}
    return {"step": "may be that of anything: its lines name neither a training nor a loss"}


def _disagreement(judged: Sequence[Judged]) -> list[str]:
    """Return a remark on the next best candidate if it has lines of its own."""
    best = judged[0]
    if best.candidate.is_bar:
        return []
    for one in judged[1:]:
        other = one.candidate
        if other.kind is best.candidate.kind or len(one.placed.rows) < 2:
            continue
        goes_on = one.placed.axis == best.placed.axis and one.last > best.last
        if goes_on and (other.is_bar or other.has_loss or not best.candidate.has_loss):
            what = "bars" if other.is_bar else "lines of another kind"
            return [
                f"{what} go on to {one.placed.axis} {one.last:,}: the last step and loss may be "
                "later than those shown"
            ]
        beside = [side.kind for side in best.candidate.sides if not side.has_step]
        if "loss" in one.placed.rows and not other.is_bar and other.kind not in beside:
            shape = " ".join(field.name for field in list(other.kind.fields.values())[:4])
            return [f"lines of another kind are not read: {shape!r} ...{_of_others(best, one)}"]
    return []


def _of_others(best: Judged, other: Judged) -> str:
    """Say that lines which are not read end with another loss, or may be another run."""
    rows, others = best.placed.rows, other.placed.rows
    if rows["place"].max() < others["place"].min() or others["place"].max() < rows["place"].min():
        return "; they stand apart, and may be another run"
    loss, at_end = (some["loss"][np.isfinite(some["loss"])] for some in (rows, others))
    if not (len(loss) and len(at_end)) or abs(loss[-1] - at_end[-1]) <= ALIKE * abs(loss[-1]):
        return ""
    return f"; their last loss is {at_end[-1]:.4g}, and may be the one that you want"
