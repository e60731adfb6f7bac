"""MLPerf logs: `:::MLLOG {json}` lines with anything before the token.

Four names for how far a run is stand in the entries, `step`, `step_num`, `samples_count` and
`epoch_num`, and which of them means what differs by key, submitter and benchmark: `step` and
`epoch_num` of some count samples or tokens, `step` of others epochs, and `samples_count` of a
`block_start` may be a block's own size. So one axis is chosen for the whole log, from the entries
on training alone; a printed throughput says what it counts.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read.columns import LARGEST_STEP, Rows
from analysis.read.text.patterns import Format
from analysis.read.text.pieces import pieces
from analysis.stats.intervals import Floats

# Keys that say what a run was, not how it went.
FACTS = frozenset([
    "global_batch_size", "seed", "submission_org", "submission_benchmark", "submission_platform",
    "number_of_ranks", "number_of_nodes", "accelerators_per_node", "gradient_accumulation_steps",
])  # fmt: skip
_FACT = re.compile(
    rb':::MLL(?:OG)?[ \t]+(\{[^\n]*"key"[ \t]*:[ \t]*"(?:run_start|run_stop|%s)"[^\n]*\})'
    % b"|".join(sorted(map(str.encode, FACTS)))
)
_SYSTEM = re.compile(rb'"(number_of_nodes|accelerators_per_node)": ?"?(\d{1,6})"?')
_AXES = {
    "step": "axis_step",
    "step_num": "axis_step",
    "samples_count": "axis_samples",
    "epoch_num": "axis_epoch",
}
# A throughput is taken for that of an axis if it differs by less than this factor.
MARGIN = 1.5
# An `epoch_num` beyond this counts samples (BERT) or tokens (GPT-3).
MOST_EPOCHS = 10_000
LARGEST_TIME_MS = 1e300

_NOT_TRAINING = (
    rb"(?:block|epoch|init|run|submission|opt|cache|power)_\w*|train_samples|"
    + b"|".join(sorted(map(str.encode, FACTS)))
)

MLPERF = Format(
    name="MLPerf",
    tokens=(b":::MLL",),
    pattern=re.compile(
        rb':::MLL(?:OG)?[ \t]+(?=[^\n]*"metric": ?"(?:(?P<is_fid>FID)|(?P<is_clip>CLIP)))?'
        rb'(?P<pairs>\{[^\n]*?"key": ?"(?:(?P<is_begin>eval_start)|'
        rb"(?P<is_end>eval_stop)|(?P<is_evaluation>\w*(?:eval|valid|accuracy)\w*)|"
        rb'(?P<is_other>%s)|\w+)"[^\n]*\})' % _NOT_TRAINING
    ),
    # A number under `value` has the name that stands under `key`.
    pair=re.compile(
        rb'"(?:key": ?")?([\w /().-]{1,60})(?:", ?"value)?": ?"?'
        rb"([-+]?[.\d][-+.\w]*|NaN|nan|-?Infinity)"
    ),
    rename=_AXES,
)


@dataclass(frozen=True, kw_only=True)
class OneAxis:
    """The rows of training and of evaluation on one axis, and what a step of it is."""

    training: Rows
    evaluations: tuple[Mapping[str, float], ...]
    axis: str
    remarks: list[str]


def on_one_axis(rows: Rows) -> OneAxis:
    """Return the rows on the axis of the training entries.

    Evaluations are rows of training if a log has nothing else. Seconds between `eval_start` and
    `eval_stop` are pauses.
    """
    rows = rows.replace(time=rows["time_s"])
    rows = rows.replace(eval_s=_pauses(rows))
    batch = next(iter(rows["batch"][~np.isnan(rows["batch"])].tolist()), None)
    axes = dict.fromkeys(_AXES.values())
    is_told = ~np.all([np.isnan(rows[axis]) for axis in axes], axis=0)
    for kind in ("is_begin", "is_end", "is_other"):
        is_told &= np.isnan(rows[kind])
    is_training = is_told & np.isnan(rows["is_evaluation"])
    evaluated = rows.take(is_told & ~is_training)
    training = rows.take(is_training) if is_training.sum() > 1 or not len(evaluated) else evaluated
    column, axis = _axis(training, rows, batch)
    if axis == "evaluation" and len(evaluated):
        training = evaluated
    training, evaluated = (_placed(some, column, axis, batch) for some in (training, evaluated))
    if axis == "sample" and batch and (np.mod(training["step"], batch) == 0).all():
        axis = "step"
        training, evaluated = (
            some.replace(step=some["step"] / batch) for some in (training, evaluated)
        )
    kept = (training["step"] >= 0) & (training["step"] < LARGEST_STEP)
    left = int((~kept).sum())
    remarks = [f"{left} entries are on another axis and are left out"] if left else []
    own = re.compile("axis_|is_|batch|time_s|lineno|file")
    names = [name for name in training.columns if not own.match(name)]
    shared = {"eval_accuracy"} if "is_fid" in rows else set()
    return OneAxis(
        training=Rows({name: training[name][kept] for name in names if name not in shared}),
        evaluations=tuple(
            {
                _measure(name, evaluated, int(row)): float(evaluated[name][row])
                for name in names
                if evaluated[name][row] < np.inf
            }
            | {"line": int(evaluated["line"][row])}
            for row in np.flatnonzero((evaluated["step"] >= 0) & (evaluated["step"] < LARGEST_STEP))
        ),
        axis=axis,
        remarks=remarks,
    )


def _measure(name: str, rows: Rows, row: int) -> str:
    """Return the name of a value; Stable Diffusion has two kinds of `eval_accuracy`."""
    kinds = (kind for kind in ("fid", "clip") if rows[f"is_{kind}"][row] > 0)
    return f"{name} {next(kinds, '')}".rstrip() if name.startswith("eval_accuracy") else name


def _placed(rows: Rows, column: str, axis: str, batch: float | None) -> Rows:
    """Return rows with their `step` and `images`: steps and samples are converted by the batch."""
    step, images = rows[column], rows["axis_samples"]
    if axis == "sample":
        step = images = np.where(np.isnan(step), images, step)
    elif axis == "epoch":
        step = np.where(np.isnan(step), rows["axis_epoch"], step)
    elif axis == "evaluation":
        step = np.arange(1.0, len(rows) + 1)
    elif axis == "step" and batch:
        images = np.where(np.isnan(images), step * batch, images)
        step = np.where(np.isnan(step), images / batch, step)
    return rows.replace(step=step, images=images)


def _pauses(rows: Rows) -> Floats:
    """Return the seconds of evaluations that ended before each row [n]."""
    spent, begun, found = 0.0, math.nan, np.zeros(len(rows))
    for row in np.flatnonzero(~np.isnan(rows["is_begin"]) | ~np.isnan(rows["is_end"])).tolist():
        if not np.isnan(rows["is_begin"][row]):
            begun = rows["time"][row]
        elif rows["time"][row] > begun:
            spent += rows["time"][row] - begun
            found[row:] = spent
            begun = math.nan
    return found


def _axis(training: Rows, every: Rows, batch: float | None) -> tuple[str, str]:
    """Return the axis that most training entries have, and what it counts."""
    counts = {axis: int((~np.isnan(training[axis])).sum()) for axis in _AXES.values()}
    best = max(counts, key=lambda axis: counts[axis])
    if best == "axis_samples":
        return best, "sample"
    values = training[best][training[best] < LARGEST_STEP]
    each = _samples_each(training[best], training)
    if (np.mod(values, 1) > 0).any():
        return best, "evaluation"
    if each is not None:
        near = [1.0 / MARGIN < each / samples < MARGIN for samples in (1.0, batch or np.nan)]
        return best, "sample" if near[0] else "step" if near[1] else "epoch"
    samples = np.unique(every["axis_samples"][every["axis_samples"] > 0])
    if np.isin(samples, values).sum() > max(1, len(samples) / 2):
        return best, "sample"
    if best == "axis_epoch" or not len(values):
        return best, "epoch" if values.max(initial=0) < MOST_EPOCHS else "unit"
    epochs = np.unique(every["axis_epoch"][every["axis_epoch"] > 0])
    if len(epochs) > 1 and np.array_equal(epochs[: len(values)], np.unique(values)[: len(epochs)]):
        return best, "epoch"
    # Steps logged at every so many are multiples of that; samples and tokens are, of the batch.
    each = float(np.gcd.reduce(values.astype(np.int64)))
    return best, "unit" if batch and each > 1 and each % batch == 0 else "step"


def _samples_each(place: Floats, training: Rows) -> float | None:
    """Return how many samples one count of an axis is, by the throughput that the log prints."""
    time = training["time"] - training["eval_s"]
    rows = np.flatnonzero(~np.isnan(place + time + training["images_per_s"]))
    counts, seconds = np.diff(place[rows]), np.diff(time[rows])
    kept = (counts > 0) & (seconds > 0)
    if not kept.any():
        return None
    per_s = float(np.median(counts[kept] / seconds[kept]))
    return float(np.median(training["images_per_s"][rows])) / per_s


def facts_and_events(path: Path) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
    """Return facts of a run (batch, seed, submitter), and the events of its start and stop."""
    facts: dict[str, Any] = {}
    events = []
    for piece in pieces(path):
        for match in _SYSTEM.finditer(piece.text):
            facts.setdefault(match[1].decode(), int(match[2]))
        for match in _FACT.finditer(piece.text):
            entry = _entry(match[1])
            key, value = entry.get("key"), entry.get("value")
            if key in FACTS and isinstance(value, int | float | str):
                facts.setdefault(str(key), value)
            elif key in ("run_start", "run_stop"):
                line = int(piece.lines_at(np.array([match.start()]))[0])
                time = entry.get("time_ms")
                if isinstance(time, int | float) and abs(time) < LARGEST_TIME_MS:
                    event = {"time": time / 1e3, "attempt": 1, "event": _event(entry)}
                    events.append(event | {"line": line})
    nodes, each = facts.get("number_of_nodes"), facts.get("accelerators_per_node")
    if "number_of_ranks" not in facts and isinstance(nodes, int) and isinstance(each, int):
        facts["number_of_ranks"] = nodes * each
    return facts, tuple(events)


def _entry(text: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _event(entry: Mapping[str, Any]) -> str:
    """Return `started`, or how the run says it stopped."""
    if entry["key"] == "run_start":
        return "started"
    metadata = entry.get("metadata")
    status = metadata.get("status") if isinstance(metadata, dict) else None
    return "done" if status == "success" else "stopped"
