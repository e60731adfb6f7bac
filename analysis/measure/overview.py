"""One row per run: state, progress, loss, rate, and the machine."""

from pathlib import Path
from typing import Any

import numpy as np

from analysis.measure.mfu import mfu
from analysis.measure.rate import measure_rate
from analysis.read.find import places, read_others
from analysis.read.machine import ranks, where
from analysis.read.run_folder import read_ours
from analysis.read.run_log import RunLog
from analysis.read.run_names import named_apart
from configs.errors import Unreadable
from configs.progress import counted
from runs.folder import RunFolder


def overview(paths: list[str]) -> list[dict[str, Any]]:
    """Return a row and remarks of every run under `paths`."""
    found: dict[tuple[Path, str], tuple[dict[str, Any], Path]] = {}
    for name in paths:
        try:
            entries = _entries(name)
        except Unreadable as error:
            if len(paths) == 1:
                raise
            entries = [(_unreadable(name, str(error)), Path(name))]
        for entry, path in entries:
            found.setdefault((path.resolve(), entry["row"]["run"]), (entry, path))
    names = named_apart([(entry["row"]["run"], path) for entry, path in found.values()])
    return [
        entry | {"row": entry["row"] | {"run": name}}
        for (entry, _), name in zip(found.values(), names, strict=True)
    ]


def _entries(path: str) -> list[tuple[dict[str, Any], Path]]:
    """Return the entries of the runs under one path, each with its own path."""
    found = []
    for place in places([path]):
        runs = counted(place.ours, f"reading the runs in {place.path}")
        found += [(_entry_of(run), run.path) for run in runs]
        others = read_others(place)
        found += [(_entry(log), log.path) for log in others.logs]
        found += [(_unreadable(name, why), place.path / name) for name, why in others.unread]
    return found


def _entry_of(run: RunFolder) -> dict[str, Any]:
    try:
        return _entry(read_ours(run))
    except Unreadable as error:
        return _unreadable(run.name, str(error))


def _entry(log: RunLog) -> dict[str, Any]:
    return {"row": run_row(log), "remarks": list(log.remarks)}


def _unreadable(name: str, why: str) -> dict[str, Any]:
    return {"row": {"run": name, "state": "unreadable"}, "remarks": [why]}


def run_row(log: RunLog) -> dict[str, Any]:
    """Return one row; unknown values are None."""
    state = log.state
    rate = measure_rate(log, clock=None)
    word = state.word if state.has_events else None
    config = log.config or {}
    is_known = rate.why_undetermined is None
    images_per_s = rate.images_per_s if is_known else None
    images_per_s = images_per_s or _printed(log, "images_per_s")
    return {
        "run": log.name,
        "state": f"{word} ({state.reason})" if state.reason else word,
        "step": int(log.step[-1]) if len(log) else state.last.get("step"),
        "steps": config.get("train.steps"),
        "loss": log.last("loss"),
        "steps_per_s": rate.steps_per_s.value if rate.steps_per_s and is_known else None,
        "images_per_s": images_per_s,
        "mfu": mfu(log, images_per_s),
        "tokens_per_s_per_device": _printed(log, "tokens_per_s"),
        "ranks": ranks(log.facts),
        "attempts": log.attempts,
        "where": where(log.facts),
        "format": log.format,
    }


def _printed(log: RunLog, name: str) -> float | None:
    """Return the median of a printed throughput: images of all devices, tokens of one."""
    values = log.column(name)[~np.isnan(log.column(name))]
    return float(np.median(values)) if len(values) else None
