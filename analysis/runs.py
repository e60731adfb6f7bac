"""One row per run: how far it is, how it does, and where it ran."""

from typing import Any

from analysis.machine import ranks, where
from analysis.read.ledger import Ledger
from analysis.read.log import RunLog
from analysis.speed import measure


def run_row(log: RunLog) -> dict[str, Any]:
    """What is known of a run; absent values are None."""
    state = log.state or {}
    rate = measure(log, clock=None)
    reason = state.get("reason")
    config = log.config or {}
    return {
        "run": log.name,
        "state": f"{state['event']} ({reason})" if reason else state.get("event"),
        "step": int(log.step[-1]) if len(log) else state.get("step"),
        "steps": config.get("train.steps"),
        "loss": log.last("loss"),
        "steps_per_s": rate.steps_per_s.value if rate.steps_per_s else None,
        "images_per_s": rate.images_per_s,
        "ranks": ranks(log.facts),
        "attempts": log.attempts,
        "where": where(log.facts),
        "format": log.format,
    }


def ledger_row(ledger: Ledger) -> dict[str, Any]:
    """What became of the lines of one file."""
    return {
        "file": str(ledger.path),
        "format": ledger.format,
        "lines": ledger.lines,
        "metrics": ledger.metrics,
        "events": ledger.events,
        "noise": ledger.noise,
        "unknown": ledger.unknown,
        "first unknown": ledger.sample,
    }
