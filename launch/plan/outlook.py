"""Forecast when the jobs of a run or a study start and end, and their cost.

The start is what `sbatch --test-only` expects; the latest is also that of 90 % of the jobs that
began in the last 14 days. The rest is the forecast of the runs.
"""

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heapreplace
from pathlib import Path
from typing import Any

from configs.gpus import rate_of, read_rates
from configs.schema.training import Resources
from configs.table import Row, formatted
from launch.plan import forecast
from launch.plan.duration import Duration, duration
from launch.slurm import client
from launch.slurm.executor import BatchScript, sbatch_text
from launch.slurm.flags import Flags
from launch.submit.script import RunRequest

_FEWEST_WAITS = 5
_TIMES = ("start", "finish", "finish_low", "finish_high")
_SUMS = ("runs", "gpu_hours", "gpu_hours_low", "gpu_hours_high", "money")
# Unknown as soon as one run of a job has no forecast.
_NEED_ALL = ("step_s", "run_hours", "finish", "finish_high", "gpu_hours", "gpu_hours_high", "money")
_Forecast = tuple[dict[str, Any], Duration]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, or an array, that could be queued; `runs` by name, in the order in which they start.

    `throttle` is the most runs at once, None for no limit.
    """

    shape: str
    script: BatchScript
    runs: Mapping[str, RunRequest]
    throttle: int | None = None

    @property
    def resources(self) -> Resources:
        """The resources of every run."""
        return next(iter(self.runs.values())).config.resources


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """By type of GPU its nodes, the most GPUs of one, and the seconds of waits; and prices."""

    gpus: Mapping[str, tuple[int, int]]
    waits: Mapping[str, Sequence[float]]
    prices: Mapping[str, float]


def ask_cluster(flags: Flags, rates: Path | None) -> Cluster:
    """Ask Slurm about the partition of the flags, and read the file of prices."""
    partition = str(flags.get("partition", "")) or None
    prices = read_rates(rates) if rates else {}
    return Cluster(gpus=client.gpus(partition), waits=client.waits_s(partition), prices=prices)


def job_rows(jobs: Sequence[Job], cluster: Cluster) -> list[Row]:
    """Return a row per job, sorted by its finish; name the runs without a forecast on stderr."""
    answers = iter(forecast.ask([run.query for job in jobs for run in job.runs.values()]))
    known, unknown = list[list[_Forecast]](), defaultdict[str, list[str]](list)
    for job in jobs:
        known.append([])
        for name, run in job.runs.items():
            resources, answer = run.config.resources, next(answers)
            facts = (resources.gpu and resources.gpus_per_node and answer.gpu()) or {}
            if length := duration(replace(run, forecast=facts)):
                known[-1].append((facts, length))
            else:
                why = facts.get("reason") or answer.remark or "no type of GPU is named"
                unknown[why].append(name)
    for why, names in unknown.items():
        print(f"no forecast of {', '.join(names)}: {why}", file=sys.stderr)
    # At the latest, all runs on a type of GPU follow each other.
    queues_s = defaultdict[str | None, float](float)
    for job, own in zip(jobs, known, strict=True):
        queues_s[job.resources.gpu] += sum(length.high for _, length in own)
    rows = [
        _row(job, own, cluster, queue_s=queues_s[job.resources.gpu])
        for job, own in zip(jobs, known, strict=True)
    ]
    return sorted(rows, key=lambda row: row["finish"] or float("inf"))


def _row(job: Job, known: Sequence[_Forecast], cluster: Cluster, *, queue_s: float) -> Row:
    """Return the row of a job; times are in seconds since 1970."""
    resources, count = job.resources, len(job.runs)
    nodes, most = cluster.gpus.get(str(resources.gpu), (0, 0))
    places = nodes * (most // max(1, resources.gpus_per_node)) // resources.nodes
    at_once = min(filter(None, (count, job.throttle, places)))
    waits, late_s = cluster.waits.get(str(resources.gpu), ()), None
    if has_history := len(waits) >= _FEWEST_WAITS:
        late_s = statistics.quantiles(waits, n=10, method="inclusive")[-1]
    start = client.expected_start(sbatch_text(job.script))
    value, low, high = (
        [getattr(length, end) for _, length in known] for end in ("value", "low", "high")
    )
    gpus, steps = resources.nodes * resources.gpus_per_node, [facts["step_s"] for facts, _ in known]
    rate = rate_of(known[0][0]["type"], cluster.prices) if known else None
    row = {
        "shape": job.shape,
        "runs": count,
        "no_forecast": count - len(known),
        "at_once": at_once,
        "step_s": max((step["value"] for step in steps), default=None),
        "run_hours": max(value, default=0) / 3600,
        "start": start,
        "wait_min": statistics.median(waits) / 60 if has_history else "no history",
        "wait_90_min": late_s and late_s / 60,
        "finish": start and start + _span_s(value, at_once),
        "finish_low": start and start + _span_s(low, at_once),
        "finish_high": start and max(start, time.time() + (late_s or 0)) + queue_s,
        "gpu_hours": gpus * sum(value) / 3600,
        "money": None if rate is None else rate * gpus * sum(value) / 3600,
        "by": "; ".join(dict.fromkeys(step["source"] for step in steps)),
        "gpu_hours_low": gpus * sum(low) / 3600,
        "gpu_hours_high": gpus * sum(high) / 3600,
    }
    return row | (dict.fromkeys(_NEED_ALL) if row["no_forecast"] else {})


def _span_s(lengths: Sequence[float], at_once: int) -> float:
    """Return how long runs take that start in order, with at most so many at once."""
    ends = [0.0] * at_once
    for length in lengths:
        heapreplace(ends, ends[0] + length)
    return max(ends)


def total(rows: Sequence[Row]) -> Row:
    """Return the latest times and the sums of rows; None if one of them is unknown."""
    values = {name: [row[name] for row in rows] for name in (*_TIMES, *_SUMS)}
    return {
        name: None if None in found else max(found) if name in _TIMES else sum(found)
        for name, found in values.items()
    }


def readable(row: Row) -> Row:
    """Return a row with its times as dates."""
    dates = {
        name: f"{datetime.fromtimestamp(row[name]):%d %b %H:%M}" for name in _TIMES if row[name]
    }
    return {**row, **dates}


def in_words(row: Row) -> dict[str, str]:
    """Return the values of a row as text, with `unknown` for those that are not known."""
    return {name: formatted(value) or "unknown" for name, value in readable(row).items()}
