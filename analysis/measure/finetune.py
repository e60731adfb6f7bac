"""Fine-tuning runs compared as people ask: by GPU and number of steps, on one named clock."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from analysis.measure.clocks import choose_clocks
from analysis.measure.cost import costs
from analysis.measure.speed import Arm, attribution, group_arms, measure_rate, speedup, verdict
from analysis.measure.speed_table import interval_text
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, placement
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, median_interval

PHASES = ("setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval", "lost")


def of_kind(logs: Sequence[RunLog], kind: str) -> list[RunLog]:
    """The runs of a kind of config."""
    return [log for log in logs if (log.config or {}).get("kind") == kind]


def device(log: RunLog) -> str | None:
    """What a run was computed on: the GPU as its driver reports it, else the processor."""
    cpus = dict.fromkeys(str(place["cpu"]) for place in placement(log.facts) if "cpu" in place)
    return gpu(log.facts) or " + ".join(cpus) or None


def planned_steps(log: RunLog) -> int | None:
    """The steps that a run was to take."""
    steps = (log.config or {}).get("train.steps")
    return steps if isinstance(steps, int) else None


def finetune_rows(logs: Sequence[RunLog]) -> list[dict[str, Any]]:
    """A row per run, by device and steps: rate on the one clock, and seconds by phase."""
    clocks = choose_clocks(logs)
    hours = {one.log.name: one.gpu_hours for one in costs(logs, {})}
    found = []
    for log, clock in zip(logs, clocks, strict=True):
        rate = measure_rate(log, clock=clock).steps_per_s
        found.append(
            {
                "device": device(log),
                "steps": planned_steps(log),
                "done": int(log.step[-1]) if len(log) else None,
                "run": log.name,
                "engine": log.facts.get("engine"),
                "clock": clock,
                "steps_per_s": rate.value if rate else None,
                "low": rate.low if rate else None,
                "high": rate.high if rate else None,
                **_phases(log),
                "image_s": _value(seconds_per_image(log)),
                "device_hours": hours[log.name],
            }
        )
    return sorted(found, key=lambda row: (str(row["device"]), row["steps"] or 0, row["run"]))


def _value(estimate: Estimate | None) -> float | None:
    return estimate.value if estimate else None


def _phases(log: RunLog) -> dict[str, float | None]:
    """Seconds by phase, those that a run has; a row has a column of each."""
    told = time_breakdown(log)
    seconds: Mapping[str, float] = told.seconds if told else {}
    spent = {f"{name}_s": round(seconds.get(name, 0.0), 3) or None for name in PHASES}
    return {"wall_s": round(told.wall_s, 3) if told else None, **spent}


def speedup_rows(logs: Sequence[RunLog]) -> list[dict[str, Any]]:
    """Each arm against the first of as many steps on another device, never across step counts."""
    measured = [
        measure_rate(log, clock=clock) for log, clock in zip(logs, choose_clocks(logs), strict=True)
    ]
    found = []
    for steps in sorted({planned_steps(log) or 0 for log in logs}):
        base, *others = group_arms(
            [run for run in measured if (planned_steps(run.log) or 0) == steps]
        )
        elsewhere = [arm for arm in others if _device(arm) != _device(base)]
        found += [_speedup_row(steps, base, arm) for arm in elsewhere]
    return found


def _device(arm: Arm) -> str | None:
    return device(arm.runs[0].log)


def _speedup_row(steps: int, base: Arm, arm: Arm) -> dict[str, Any]:
    ratio = speedup(base, arm)
    return {
        "steps": steps,
        "base": f"{_device(base)}: {base.name}",
        "against": f"{_device(arm)}: {arm.name}",
        "clock": arm.runs[0].clock,
        "speedup": ratio.value if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "verdict": verdict(base, arm, ratio),
        "of": attribution(base, arm),
    }


def seconds_per_image(log: RunLog) -> Estimate | None:
    """The median seconds of an image, the first of each start left out; None where none is told.

    A run that draws tells of every image, ai-toolkit of each set of samples on the way.
    """
    told = [record["image_s"] for record in log.evaluations if _is_number(record.get("image_s"))]
    for record in log.evaluations:
        images, seconds, first = (
            record.get(name) for name in ("drawn_images", "drawn_s", "first_image_s")
        )
        if _is_number(images) and _is_number(seconds) and _is_number(first) and images > 1:
            told.append((seconds - first) / (images - 1))
    return median_interval(np.array(told)) if told else None


def image_rows(logs: Sequence[RunLog]) -> list[dict[str, Any]]:
    """A row per run that drew images: seconds per image, and what comes before apart."""
    found = []
    for log in logs:
        each = seconds_per_image(log)
        found.append(
            {
                "device": device(log),
                "run": log.name,
                "images": sum("image_s" in record for record in log.evaluations) or None,
                "image_s": each.value if each else None,
                "low": each.low if each else None,
                "high": each.high if each else None,
                **{name: _newest(log, name) for name in _BEFORE},
            }
        )
    return sorted(found, key=lambda row: (str(row["device"]), row["run"]))


def display_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its interval in one column."""
    found = {}
    for name, value in row.items():
        if name == "low":
            found["95 %"] = interval_text(row["low"], row["high"], ".4g")
        elif name != "high":
            found[name] = value
    return found


_BEFORE = ("load_s", "quantise_s", "text_s", "warmup_s", "first_image_s")


def _newest(log: RunLog, name: str) -> float | None:
    told = [record[name] for record in log.evaluations if _is_number(record.get(name))]
    return float(told[-1]) if told else None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return type(value) in (int, float)
