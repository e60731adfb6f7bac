"""MLPerf logs: `:::MLLOG {json}` lines with anything before the token.

Four names for how far a run is stand in the entries, `step`, `step_num`, `samples_count` and
`epoch_num`, and which of them means what differs by key, submitter and benchmark: `step` and
`epoch_num` of some count samples or tokens, `step` of others epochs, and `samples_count` of a
`block_start` may be a block's own size. So one axis is chosen for the whole log, from the entries
on training alone, and it has no name unless the samples of other entries confirm it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read.assemble import Placed, assemble, one_rank
from analysis.read.columns import LARGEST_STEP, Cells, Rows
from analysis.read.formats.structured import as_numbers
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes, pieces
from analysis.stats.intervals import Floats

# Keys that say what a run was, not how it went.
FACTS = (
    "global_batch_size|seed|submission_org|submission_benchmark|submission_platform|"
    "number_of_ranks|number_of_nodes|accelerators_per_node|gradient_accumulation_steps"
)
_FACT = re.compile(FACTS)
_ENTRY = re.compile(
    r"(?:^|\n)(?:(?: {0,5}|\[(?i:rank|default) ?)(?P<rank>\d{1,6})[]:])?[^\n]*?"
    r":::MLL(?:OG)?[ \t]+(?P<json>\{[^\n]*\})"
)
_SYSTEM = re.compile(r'"(number_of_nodes|accelerators_per_node)": ?"?(\d{1,6})"?')
_JSON = json.JSONDecoder()
_AXES = {
    "step": "axis_step",
    "step_num": "axis_step",
    "samples_count": "axis_samples",
    "epoch_num": "axis_epoch",
}
# An `epoch_num` beyond this counts samples (BERT) or tokens (GPT-3).
MOST_EPOCHS = 10_000
# The part of a file that is looked at for an entry.
PEEK = 1 << 20

_KIND = re.compile(
    r"(?P<begin>eval_start)|(?P<end>eval_stop)|(?P<evaluation>\w*(?:eval|valid|accuracy)\w*)|"
    r"(?P<other>(?:block|epoch|init|run|submission|opt|cache|power)_\w*|train_samples|"
    + FACTS
    + r")|(?P<training>.*)"
)


def is_mlperf(path: Path) -> bool:
    """Whether a file begins as a log with entries."""
    with open_bytes(path) as file:
        return b":::MLL" in file.read(PEEK)


def read_mlperf(path: Path, *, name: str) -> list[RunLog]:
    """Return the run in a log, on the axis of its training entries."""
    cells, lines, places, count = Cells(), list[int](), list[int](), 0
    facts: dict[str, Any] = {}
    for piece in pieces(path):
        count += len(piece.newlines)
        for node, number in _SYSTEM.findall(piece.text):
            facts.setdefault(node, int(number))
        for match in _ENTRY.finditer(piece.text):
            entry = _entry(match["json"])
            if not entry:
                continue
            if _FACT.fullmatch(entry["key"]) and isinstance(entry.get("value"), int | float | str):
                facts.setdefault(entry["key"], entry["value"])
            rank = {"rank": float(match["rank"])} if match["rank"] else {}
            cells.add(len(lines), numbers_of(entry) | rank)
            lines.append(int(piece.lines_at(np.array([match.start("json")]))[0]))
            places.append(piece.offset + match.start("json"))
    columns = cells.columns(len(lines))
    columns |= {"line": np.array(lines, dtype=float), "place": np.array(places, dtype=float)}
    rows, remarks = one_rank(Rows(columns))
    placed = on_one_axis(rows)
    nodes, each = facts.get("number_of_nodes"), facts.get("accelerators_per_node")
    if isinstance(nodes, int) and isinstance(each, int):
        facts.setdefault("number_of_ranks", nodes * each)
    placed = replace(placed, remarks=[*remarks, *placed.remarks])
    logs = assemble(placed, path=path, name=name, kind="MLPerf")
    if len(logs) == 1:
        events = (*events_of(rows), *logs[0].events)
        logs = [replace(logs[0], facts=facts, events=events, evaluations=placed.evaluations)]
    return [replace(log, lines_read=(len(lines), count)) for log in logs]


def _entry(text: str) -> dict[str, Any]:
    """Return a JSON object with a key, or an empty one."""
    try:
        entry, _ = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry.get("key"), str) else {}


def numbers_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of one entry by name, its time, its axes and its kind."""
    key, value, metadata = entry["key"], entry.get("value"), entry.get("metadata")
    kind = _KIND.fullmatch(key)
    found = {f"is_{kind.lastgroup}": 1.0} if kind else {}
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("metric") in ("FID", "CLIP"):
        # Stable Diffusion has two kinds of `eval_accuracy`.
        key = f"{key} {metadata['metric'].lower()}"
    found |= as_numbers(value if isinstance(value, dict) else {key: value})
    if "throughput" in found:
        found["images_per_s"] = found.pop("throughput")
    kept = metadata.keys() - {"file", "lineno"}
    found |= as_numbers({_AXES.get(name, name): metadata[name] for name in kept})
    times = as_numbers({name: entry.get(name) for name in ("time_ms", "time_s")})
    if times:
        found["timestamp"] = times["time_ms"] / 1e3 if "time_ms" in times else times["time_s"]
    if key in ("run_start", "run_stop"):
        found[key] = float(metadata.get("status") == "success")
    return found


def on_one_axis(rows: Rows) -> Placed:
    """Return the rows on the axis of the training entries.

    Evaluations are rows of training if a log has nothing else. Seconds between `eval_start` and
    `eval_stop` are pauses.
    """
    rows = rows.replace(eval_s=_pauses(rows))
    batch = next(iter(rows["global_batch"][~np.isnan(rows["global_batch"])].tolist()), None)
    has_place = ~np.all([np.isnan(rows[axis]) for axis in _AXES.values()], axis=0)
    training, evaluated = (
        rows.take(has_place & (rows[kind] > 0)) for kind in ("is_training", "is_evaluation")
    )
    if len(training) < 2 and len(evaluated):
        training = evaluated
    placed = list[Rows]()
    column, size, axis = _axis(training, rows, batch)
    for some in (training, evaluated):
        images = np.where(np.isnan(some[column]), some["axis_samples"], size * some[column])
        step = {"sample": images, "step": images / (batch or np.nan)}.get(axis, some[column])
        if axis == "unit" and (np.mod(step, 1) > 0).any():
            step = np.arange(1.0, len(some) + 1)
        placed.append(some.replace(step=step, images=images))
    training, evaluated = placed
    kept = (training["step"] >= 0) & (training["step"] < LARGEST_STEP)
    left = int((~kept).sum())
    names = [name for name in training.columns if not re.match("axis_|is_|batch", name)]
    return Placed(
        rows=Rows({name: training[name][kept] for name in names}),
        evaluations=tuple(
            {name: float(evaluated[name][row]) for name in names if evaluated[name][row] < np.inf}
            | {"line": int(evaluated["line"][row])}
            for row in np.flatnonzero((evaluated["step"] >= 0) & (evaluated["step"] < LARGEST_STEP))
        ),
        axis=axis,
        remarks=[f"{left} entries are on another axis and are left out"] if left else [],
    )


def _pauses(rows: Rows) -> Floats:
    """Return the seconds of evaluations that ended before each row [n]."""
    begun, spent, time, begins = math.nan, np.zeros(len(rows)), rows["time"], rows["is_begin"] > 0
    for row in np.flatnonzero(begins | (rows["is_end"] > 0)).tolist():
        if begins[row]:
            begun = time[row]
        elif time[row] > begun:
            spent[row] = time[row] - begun
            begun = math.nan
    return np.cumsum(spent)


def _axis(training: Rows, every: Rows, batch: float | None) -> tuple[str, float, str]:
    """Return the axis that most training entries have, the samples of one count, and its name.

    Samples or steps are known by the samples of other entries; samples that are whole batches count
    steps. An axis that nothing confirms counts a `unit` of NaN samples.
    """
    counts = {axis: int((~np.isnan(training[axis])).sum()) for axis in _AXES.values()}
    best = max(counts, key=lambda axis: counts[axis])
    values = training[best][training[best] < LARGEST_STEP]
    samples = np.unique(every["axis_samples"][every["axis_samples"] > 0])
    for size in (1.0, batch or np.nan):
        fits = np.isin(samples / size, values).sum() > max(1, len(samples) / 2)
        if fits or best == "axis_samples":
            is_step = batch and not np.mod(size * values, batch).any()
            return best, size, "step" if is_step else "sample"
    is_epoch = best == "axis_epoch" and values.max(initial=0) < MOST_EPOCHS
    return best, np.nan, "epoch" if is_epoch and not np.mod(values, 1).any() else "unit"


def events_of(rows: Rows) -> tuple[Mapping[str, Any], ...]:
    """Return the events of the start and the stop of a run."""
    events = []
    for row in np.flatnonzero(~np.isnan(rows["run_start"]) | ~np.isnan(rows["run_stop"])).tolist():
        if np.isfinite(rows["time"][row]):
            ended = "done" if rows["run_stop"][row] > 0 else "stopped"
            event = "started" if np.isnan(rows["run_stop"][row]) else ended
            time, line = float(rows["time"][row]), int(rows["line"][row])
            events.append({"time": time, "attempt": 1, "event": event, "line": line})
    return tuple(events)
