"""Forecast when the jobs of a run or a study start and how long their runs take.

The start is what `sbatch --test-only` expects now. A run takes its steps by the forecast and three
things that are stated, not derived: 3 minutes for the start, its saves (`saves.py`), and 10 % of
the steps for samples and evaluations. When the last run of an array ends is not said: how many run
at once depends on other users' jobs.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from configs.load import flatten, to_tree
from configs.schema.training import Resources
from configs.table import Row, formatted
from launch.plan import forecast
from launch.plan.saves import expected_saves
from launch.slurm import client
from launch.slurm.executor import BatchScript, sbatch_text
from launch.submit.script import RunRequest
from runs.records import saves

_START_S, _SHARE = 180.0, 1.1
_TIMES = ("start", "finish", "finish_low", "finish_high")
_SUMS = ("runs", "gpu_hours", "gpu_hours_low", "gpu_hours_high")
# Unknown as soon as one run of a job has no forecast.
_NEED_ALL = ("step_s", "run_hours", "gpu_hours", "gpu_hours_high")


@dataclass(frozen=True, kw_only=True)
class RunForecast:
    """The seconds that a run still takes, and those of a step, between the ends of its forecast."""

    source: str
    step_s: float
    value_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, or an array, that could be queued, and its runs by name."""

    shape: str
    script: BatchScript
    runs: Mapping[str, RunRequest]

    @property
    def resources(self) -> Resources:
        """The resources of every run."""
        return next(iter(self.runs.values())).config.resources


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


def job_rows(jobs: Sequence[Job]) -> list[Row]:
    """Return a row per job, the first to finish first; name runs without a forecast on stderr."""
    answers = iter(forecast.ask([run.query for job in jobs for run in job.runs.values()]))
    rows, unknown = list[Row](), defaultdict[str, list[str]](list)
    for job in jobs:
        known = list[RunForecast]()
        for name, run in job.runs.items():
            resources, answer = run.config.resources, next(answers)
            facts = (resources.gpu and resources.gpus_per_node and answer.gpu()) or {}
            if found := forecast_run(run, facts):
                known.append(found)
            else:
                why = facts.get("reason") or answer.remark or "no type of GPU is named"
                unknown[why].append(name)
        rows.append(_row(job, known))
    for why, names in unknown.items():
        print(f"no forecast of {', '.join(names)}: {why}", file=sys.stderr)
    return sorted(rows, key=lambda row: row.get("finish") or row["start"] or float("inf"))


def _row(job: Job, known: Sequence[RunForecast]) -> Row:
    """Return the row of a job; times are in seconds since 1970."""
    resources, count = job.resources, len(job.runs)
    start = client.expected_start(sbatch_text(job.script))
    finish: dict[str, float] = {}
    if start and count == len(known) == 1:
        [run] = known
        ends = (start + run.value_s, start + run.low_s, start + run.high_s)
        finish = dict(zip(_TIMES[1:], ends, strict=True))
    gpus = resources.nodes * resources.gpus_per_node
    row = {
        "shape": job.shape,
        "runs": count,
        "no_forecast": count - len(known),
        "step_s": max((run.step_s for run in known), default=None),
        "run_hours": max((run.value_s for run in known), default=0) / 3600,
        "start": start,
        **finish,
        "gpu_hours": gpus * sum(run.value_s for run in known) / 3600,
        "by": "; ".join(dict.fromkeys(run.source for run in known)),
        "gpu_hours_low": gpus * sum(run.low_s for run in known) / 3600,
        "gpu_hours_high": gpus * sum(run.high_s for run in known) / 3600,
    }
    return row | (dict.fromkeys(_NEED_ALL) if row["no_forecast"] else {})


def total(rows: Sequence[Row]) -> Row:
    """Return the first start and the sums of rows; None if one of them is unknown."""
    values = {name: [row[name] for row in rows] for name in ("start", *_SUMS)}
    return {
        name: None if None in found else min(found) if name == "start" else sum(found)
        for name, found in values.items()
    }


def readable(row: Row) -> Row:
    """Return a row with its times as dates."""
    dates = {
        name: f"{datetime.fromtimestamp(row[name]):%d %b %H:%M}" for name in _TIMES if row.get(name)
    }
    return {**row, **dates}


def in_words(row: Row) -> dict[str, str]:
    """Return the values of a row as text, with `unknown` for those that are not known."""
    return {name: formatted(value) or "unknown" for name, value in readable(row).items()}
