"""One row per run: state, progress, loss, rate, and the machine."""

from typing import Any

import numpy as np

from analysis.gpus.mfu import mfu
from analysis.measure.loss_curve import not_finite_from
from analysis.measure.rate import measure_rate
from analysis.read.machine import ranks, where
from analysis.read.run_log import RunLog


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
        "epoch": _epoch(log),
        "loss": log.last("loss") if not_finite_from(log) is None else None,
        "steps_per_s": rate.steps_per_s.value if rate.steps_per_s and is_known else None,
        "images_per_s": images_per_s,
        "mfu": mfu(log, images_per_s),
        "tokens_per_s_per_device": _printed(log, "tokens_per_s"),
        "ranks": ranks(log.facts),
        "attempts": log.attempts,
        "where": where(log.facts),
        "format": log.format,
    }


def _epoch(log: RunLog) -> float | None:
    """Return the last epoch beside another axis; a number that never changes is a setting."""
    known = log.column("epoch")[np.isfinite(log.column("epoch"))]
    return log.last("epoch") if log.axis != "epoch" and len(np.unique(known)) > 1 else None


def _printed(log: RunLog, name: str) -> float | None:
    """Return the median of a printed throughput: images of all devices, tokens of one."""
    values = log.column(name)[~np.isnan(log.column(name))]
    return float(np.median(values)) if len(values) else None
