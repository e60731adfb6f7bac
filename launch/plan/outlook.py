"""Forecast when a run starts and ends on each type of GPU.

The start is what `sbatch --test-only` expects now. A run takes its steps by the forecast and three
things that are stated, not derived: 3 minutes for the start, its saves (`saves.py`), and 10 % of
the steps for samples and evaluations.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from configs.load import flatten, to_tree
from configs.table import Row, formatted
from launch.plan import forecast
from launch.plan.saves import expected_saves
from launch.slurm import client
from launch.slurm.executor import sbatch_text
from launch.submit.script import RunRequest, batch_script
from runs.records import saves

_START_S, _SHARE = 180.0, 1.1
_TIMES = ("start", "finish", "finish_low", "finish_high")


@dataclass(frozen=True, kw_only=True)
class RunForecast:
    """The seconds that a run still takes, and those of a step, between the ends of its forecast."""

    source: str
    step_s: float
    value_s: float
    low_s: float
    high_s: float


def forecast_run(request: RunRequest, facts: Mapping[str, Any]) -> RunForecast | None:
    """Return how long a run takes by the forecast for its GPU, None if that is not known."""
    step: dict[str, Any] | None = facts.get("step_s")
    if not step:
        return None
    records = request.resumes.records() if request.resumes else ()
    done = [save["step"] for save in saves(records)]
    steps = max(0, request.config.last_step() - (done[-1] if done else 0))
    save = expected_saves(request, facts.get("parameters") or 0)
    # Every kind of run with a forecast has this key.
    count = steps // flatten(to_tree(request.config))["checkpoint.every"] + 1
    fixed = _START_S + count * (save.save_s if save else 0.0)
    ends = {f"{end}_s": fixed + _SHARE * steps * step[end] for end in ("value", "low", "high")}
    return RunForecast(source=step["source"], step_s=step["value"], **ends)


def placements(requests: Sequence[RunRequest]) -> list[tuple[RunRequest, Row]]:
    """Return a run on several types of GPU with a row for each, the first to finish first.

    Types without a forecast are left out if another has one, and named on stderr with the reason.
    """
    pairs = []
    answers = forecast.ask([request.query for request in requests])
    for request, answer in zip(requests, answers, strict=True):
        resources = request.config.resources
        facts = (resources.gpu and resources.gpus_per_node and answer.gpu()) or {}
        row = _row(request, known := forecast_run(request, facts))
        if known is None:
            why = facts.get("reason") or answer.remark or "no type of GPU is named"
            print(f"no forecast of {row['shape']}: {why}", file=sys.stderr)
        pairs.append((request, row))
    known_pairs = [pair for pair in pairs if "run_hours" in pair[1]] or pairs
    return sorted(known_pairs, key=lambda pair: pair[1].get("finish", float("inf")))


def _row(request: RunRequest, known: RunForecast | None) -> Row:
    """Return the row of a run on a type of GPU; times are in seconds since 1970."""
    resources = request.config.resources
    start = client.expected_start(sbatch_text(batch_script(request, request.run)))
    shape = f"{resources.gpu or 'any'}:{resources.nodes}x{resources.gpus_per_node}"
    row: dict[str, Any] = {"shape": shape, "start": start}
    if known is None:
        return row
    ends = {"": known.value_s, "_low": known.low_s, "_high": known.high_s}
    gpus = resources.nodes * resources.gpus_per_node
    finish = {f"finish{end}": start + length for end, length in ends.items()} if start else {}
    hours = {f"gpu_hours{end}": gpus * length / 3600 for end, length in ends.items()}
    row |= {"step_s": known.step_s, "run_hours": known.value_s / 3600}
    return row | finish | hours | {"by": known.source}


def readable(row: Row) -> Row:
    """Return a row with its times as dates."""
    return {**row, **{name: date(row[name]) for name in _TIMES if row.get(name)}}


def date(when: float | None) -> str:
    """Return a time in seconds since 1970 for people."""
    return f"{datetime.fromtimestamp(when):%d %b %H:%M}" if when else "unknown"


def in_words(row: Row) -> dict[str, str]:
    """Return the values of a row as text."""
    return {name: formatted(value) for name, value in readable(row).items()}
