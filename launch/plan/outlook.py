"""Forecast where a run or a study would run, when it would be done, and its cost.

A run has a row for each shape of the cluster, a study one for each of its arrays: on each type of
GPU, if its cells name none. The start is what `sbatch --test-only` expects; its latest is also that
of 90 % of the jobs that began in the last 14 days. The rest is the forecast of the runs.
"""

import shlex
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
from configs.schema.study import FEWEST_REPEATS
from configs.schema.training import Resources
from configs.table import Row, formatted
from configs.terminal import plural
from launch.plan import forecast
from launch.plan.duration import Duration, duration
from launch.plan.placements import placements
from launch.slurm import client
from launch.slurm.executor import BatchScript, sbatch_text
from launch.slurm.flags import Flags, to_words
from launch.submit.script import RunRequest, batch_script, overrides_from
from launch.submit.study import StudyRequest, StudySubmission, study_submission

_MOST_NODES, _FEWEST_WAITS = 4, 5
_TIMES = ("start", "finish", "finish_low", "finish_high")
_NEED_ALL = ("step_s", "run_hours", "finish", "finish_high", "gpu_hours", "gpu_hours_high", "money")
_Forecast = tuple[dict[str, Any], Duration]
# Rows, and the advice that follows from them.
Outlook = tuple[list[Row], str]


@dataclass(frozen=True, kw_only=True)
class _Cluster:
    """By type of GPU its nodes, the most GPUs of one, and the seconds of waits; and prices."""

    gpus: Mapping[str, tuple[int, int]]
    waits: Mapping[str, Sequence[float]]
    prices: Mapping[str, float]


def run_outlook(request: RunRequest, *, rates: Path | None, site_name: str | None) -> Outlook:
    """Return a row for each shape on which a run fits, and the advice."""
    return _of_run(request, _ask_cluster(request.site.flags | request.flags, rates), site_name)


def study_outlook(study: StudySubmission, *, rates: Path | None, site_name: str | None) -> Outlook:
    """Return rows for a study and its arrays, and the advice."""
    flags = study.site.flags | study.request.flags
    return _of_study(study, _ask_cluster(flags, rates), site_name)


def _ask_cluster(flags: Flags, rates: Path | None) -> _Cluster:
    partition = str(flags.get("partition", "")) or None
    prices = read_rates(rates) if rates else {}
    return _Cluster(gpus=client.gpus(partition), waits=client.waits_s(partition), prices=prices)


def _of_run(request: RunRequest, cluster: _Cluster, site_name: str | None) -> Outlook:
    """Return a row for each shape on which the run fits, and the advice."""
    shapes = [
        f"{gpu}:{nodes}x{count}"
        for gpu, (has, most) in cluster.gpus.items()
        for nodes in range(1, min(has, _MOST_NODES) + 1)
        for count in sorted({most, *(2**n for n in range(most.bit_length()) if nodes == 1)})
        if gpu
    ]
    rows, words = list[Row](), dict[str, list[str]]()
    refusals = defaultdict[str, list[str]](list)
    for place in placements(request, shapes, site_name=site_name):
        one, words[place.shape] = place.request, place.overrides
        if place.refusal or not (found := duration(one)):
            refusals[place.refusal or "no forecast"].append(place.shape)
        else:
            script, runs = batch_script(one, one.run), [(one.forecast or {}, found)]
            columns = _columns(script, one.config.resources, runs, cluster, found.high)
            rows.append({"shape": place.shape, **columns})
    for why, where in refusals.items():
        print(f"{', '.join(where)}: {why}", file=sys.stderr)
    rows.sort(key=lambda row: row["finish"] or float("inf"))
    if not rows or rows[0]["finish"] is None:
        return rows, "no finish time can be forecast for any placement here"
    best = replace(request, overrides=[*request.overrides, *words[rows[0]["shape"]]])
    advice = "first done: {shape}, about {finish} ({finish_low} to {finish_high}); queue it: "
    return rows, advice.format_map(readable(rows[0])) + _submit(best, site_name)


def _columns(
    script: BatchScript, resources: Resources, runs: Sequence[_Forecast], cluster: _Cluster,
    queue_s: float | None, *, at_once: int = 1,
) -> Row:  # fmt: skip
    """Return the columns of a job's runs; times are in seconds since 1970.

    The runs start in order, `at_once` at a time, and at the latest one after the other in
    `queue_s`; None: some have no forecast, so `_NEED_ALL` are not known.
    """
    waits, late_s = cluster.waits.get(str(resources.gpu), ()), None
    if has_history := len(waits) >= _FEWEST_WAITS:
        late_s = statistics.quantiles(waits, n=10, method="inclusive")[-1]
    start = client.expected_start(sbatch_text(script))
    values, low, high = ([getattr(one, end) for _, one in runs] for end in ("value", "low", "high"))
    gpus, steps = resources.nodes * resources.gpus_per_node, [gpu["step_s"] for gpu, _ in runs]
    rate = rate_of(runs[0][0]["type"], cluster.prices) if runs else None
    return {
        "step_s": max((step["value"] for step in steps), default=None),
        "run_hours": max(values, default=0) / 3600,
        "start": start,
        "wait_min": statistics.median(waits) / 60 if has_history else "no history",
        "wait_90_min": late_s and late_s / 60,
        "finish": start and start + _span_s(values, at_once),
        "finish_low": start and start + _span_s(low, at_once),
        "finish_high": start and max(start, time.time() + (late_s or 0)) + (queue_s or 0),
        "gpu_hours": gpus * sum(values) / 3600,
        "money": None if rate is None else rate * gpus * sum(values) / 3600,
        "by": "; ".join(dict.fromkeys(step["source"] for step in steps)),
        "gpu_hours_low": gpus * sum(low) / 3600,
        "gpu_hours_high": gpus * sum(high) / 3600,
    } | (dict.fromkeys(_NEED_ALL) if queue_s is None else {})


def _span_s(lengths: Sequence[float], at_once: int) -> float:
    """Return how long runs take that start in order, with at most so many at once."""
    ends = [0.0] * at_once
    for length in lengths:
        heapreplace(ends, ends[0] + length)
    return max(ends)


def readable(row: Row) -> Row:
    """Return a row with its times as dates."""
    dates = {
        name: f"{datetime.fromtimestamp(row[name]):%d %b %H:%M}" for name in _TIMES if row[name]
    }
    return {**row, **dates}


def _submit(request: RunRequest | StudyRequest, site_name: str | None) -> str:
    where = to_words(request.flags | ({"site": site_name} if site_name else {}))
    return f"ditbench submit {shlex.join([str(request.source), *request.overrides, *where])}"


def _of_study(submission: StudySubmission, cluster: _Cluster, site_name: str | None) -> Outlook:
    """Return a row for the study and for each array, and the advice; by type if no cell names one.

    The type on which the fewest runs are omitted comes first, then the one that is done first.
    """
    if not submission.todo:
        return [], "nothing to run: no run is missing or failed, or none fits"
    request, found = submission.request, list[Outlook]()
    asked = [run.cell.config.resources for run in submission.plan.runs] if submission.plan else []
    is_open = asked and all(one.gpus_per_node and not one.gpu for one in asked)
    for gpu in [gpu for gpu in cluster.gpus if gpu and is_open] or [""]:
        if gpu:
            words = [*request.overrides, *overrides_from({"resources.gpu": gpu})]
            submission = study_submission(replace(request, overrides=words))
        found.append((_outlook(submission, gpu, cluster), _submit(submission.request, site_name)))
    found.sort(key=lambda one: (one[0][0]["omitted"], one[0][0]["finish"] or float("inf")))
    lines = []
    for rows, _ in reversed(found):
        said = {name: formatted(one) or "unknown" for name, one in readable(rows[0]).items()}
        lines.append((
            "{shape}: {runs} runs, done about {finish} ({finish_low} to {finish_high}), "
            "{gpu_hours} GPU-hours ({gpu_hours_low} to {gpu_hours_high}), money {money}"
        ).format_map(said))  # fmt: skip
    lines[-1] += f"; queue it: {found[0][1]}" if found[0][0][0]["finish"] else ""
    return [row for rows, _ in found for row in rows], "\n".join(lines)


def _outlook(submission: StudySubmission, gpu: str, cluster: _Cluster) -> list[Row]:
    """Return a row for the runs that `submit` would queue, then one per array; name the omitted."""
    known, omitted = _forecasts(submission)
    name, queues_s = f"study{gpu and f' on {gpu}'}", defaultdict[str | None, float](float)
    arrays = submission.scripts()
    for array, _ in arrays:
        lengths = [known[row.index][1] for row in array.rows if row.index in known]
        queues_s[array.resources.gpu] += sum(length.high for length in lengths)
    rows = list[Row]()
    for array, script in arrays:
        resources, count = array.resources, len(array.rows)
        own = [known[row.index] for row in array.rows if row.index in known]
        nodes, most = cluster.gpus.get(str(resources.gpu), (0, 0))
        places = nodes * (most // max(1, resources.gpus_per_node)) // resources.nodes
        at_once = min(filter(None, (count, submission.settings.throttle, places)))
        queue_s = queues_s[resources.gpu] if len(own) == count else None
        rows.append({
            "shape": array.shape, "runs": count, "omitted": count - len(own), "at_once": at_once,
            "sum_hours": queue_s and sum(length.value for _, length in own) / 3600,
            **_columns(script, resources, own, cluster, queue_s, at_once=at_once),
        })  # fmt: skip
        if rows[-1]["start"] is None:
            omitted["that sbatch refuses, as its check says"] += [r.cell for r in array.rows]
    for why, runs in omitted.items():
        print(f"{name}: {plural(len(runs), 'run')} {why}: {', '.join(runs)}", file=sys.stderr)
    total = {"shape": name, "runs": len(submission.todo)}
    for head in (*_TIMES, "gpu_hours", "gpu_hours_low", "gpu_hours_high", "money"):
        values = [row[head] for row in rows] or [None]
        total[head] = None if None in values else max(values) if head in _TIMES else sum(values)
    total["omitted"] = sum(map(len, omitted.values()))
    return [total, *sorted(rows, key=lambda row: row["finish"] or float("inf"))]


def _forecasts(
    submission: StudySubmission,
) -> tuple[dict[int, _Forecast], dict[str, list[str]]]:
    """Return the forecasts by index of the row, and the names of the other runs by the reason.

    With `stop: decided` the lower ends count the least number of repeats.
    """
    known, omitted = dict[int, _Forecast](), defaultdict[str, list[str]](list)
    in_order = sorted(submission.rows, key=lambda row: row.order)
    passes = dict.fromkeys((row.repeat, str(row.levels.get("seed"))) for row in in_order)
    spared = [*passes][FEWEST_REPEATS:] if submission.settings.stop else []
    for run in submission.plan.runs if submission.plan else ():
        if run.dropped:
            omitted[f"dropped: {run.dropped}"].append(run.name)
    requests = [*map(submission.run_request, submission.todo)]
    answers = forecast.ask([one.query for one in requests])
    for row, one, answer in zip(submission.todo, requests, answers, strict=True):
        resources = one.config.resources
        facts = (resources.gpu and resources.gpus_per_node and answer.gpu()) or {}
        if length := duration(replace(one, forecast=facts)):
            is_spared = (row.repeat, str(row.levels.get("seed"))) in spared
            known[row.index] = facts, replace(length, low=0.0 if is_spared else length.low)
        else:
            why = facts.get("reason") or answer.remark or "no type of GPU is named"
            omitted[f"without a forecast: {why}"].append(row.cell)
    return known, omitted
