"""Compare fine-tuning runs by device and number of steps, on one named clock."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.cost import cost_rows
from analysis.measure.speed import SPEED, Arm, attribution, group_arms, judged_speeds, measure_rates
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, placement
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate
from analysis.stats.judge import Judgement
from analysis.stats.summary import mean_of
from analysis.study.cells import peak_memory_gb
from analysis.table import interval_text
from analysis.verdict import verdict_fields
from configs.schema import keys
from runs.records import is_number

PHASES = ("setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval", "lost")
# Results of the newest evaluation at fixed noise, on training and on held-out images.
_LEARNT = tuple(
    f"{of}_{name}" for of in ("held_out", "validation") for name in ("loss", "gain", "gain_95")
)
# What a reader asks for first; a manifest has `images_in_set` and `engine`.
_FOR_PROGRAMS = ("high", "word", "unit", "n", "comparisons", "why")
LABELS = {info.name: info.label for info in keys("finetune").values() if info.label is not None}
SETTINGS = {"engine": "engine"} | LABELS | {"images_in_set": "images", "seed": "seed"}
# Seconds before the first image of an inference run, and of that image.
_STARTUP = ("load_s", "quantise_s", "text_s", "warmup_s", "first_image_s")


def of_kind(logs: Sequence[RunLog], kind: str) -> list[RunLog]:
    """Return the runs whose config is of a kind."""
    return [log for log in logs if (log.config or {}).get("kind") == kind]


def device(log: RunLog) -> str | None:
    """Return the GPU model as the driver reports it, or the CPU model."""
    cpus = dict.fromkeys(str(place["cpu"]) for place in placement(log.facts) if "cpu" in place)
    return gpu(log.facts) or " + ".join(cpus) or None


def planned_steps(log: RunLog) -> int | None:
    """Return the steps that the config asks for."""
    steps = (log.config or {}).get("train.steps")
    return steps if isinstance(steps, int) else None


def finetune_rows(logs: Sequence[RunLog]) -> list[dict[str, Any]]:
    """Return a row per run, by device and steps: rate on one clock, and seconds by phase."""
    hours = {row["run"]: row["gpu_hours"] for row in cost_rows(logs, {})}
    found = []
    for run in measure_rates(logs):
        log, image_s = run.log, seconds_per_image(run.log)
        found.append(
            {
                "device": device(log),
                "steps": planned_steps(log),
                "done": int(log.step[-1]) if len(log) else None,
                "run": log.name,
                "engine": log.facts.get("engine"),
                **{name: _newest(log, name) for name in _LEARNT},
                "gpu_gb": peak_memory_gb(log),
                "clock": run.clock,
                **_estimate("steps_per_s", run.steps_per_s),
                **_phases(log),
                "image_s": image_s.value if image_s else None,
                "device_hours": hours[log.name],
            }
        )
    return sorted(found, key=lambda row: (str(row["device"]), row["steps"] or 0, row["run"]))


def _estimate(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {
        name: estimate.value if estimate else None,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
    }


def _phases(log: RunLog) -> dict[str, float | None]:
    """Return seconds by phase; a phase that the run lacks is None."""
    breakdown = time_breakdown(log)
    seconds: Mapping[str, float] = breakdown.seconds if breakdown else {}
    spent = {f"{name}_s": round(seconds.get(name, 0.0), 3) or None for name in PHASES}
    return {"wall_s": round(breakdown.wall_s, 3) if breakdown else None, **spent}


def speedup_rows(logs: Sequence[RunLog]) -> list[dict[str, Any]]:
    """Return each arm against the first one of equally many steps, if their devices differ."""
    measured = measure_rates(logs)
    found = []
    for steps in sorted({planned_steps(log) or 0 for log in logs}):
        arms = group_arms([run for run in measured if (planned_steps(run.log) or 0) == steps])
        first = device(arms[0].runs[0].log)
        arms = [arms[0], *(arm for arm in arms if device(arm.runs[0].log) != first)]
        judged = zip(arms[1:], judged_speeds(arms)[1:], strict=True)
        found += [_speedup_row(steps, arms[0], arm, verdict) for arm, verdict in judged]
    return found


def _speedup_row(steps: int, base: Arm, arm: Arm, found: Judgement | None) -> dict[str, Any]:
    return {
        "steps": steps,
        "base": f"{device(base.runs[0].log)}: {base.name}",
        "against": f"{device(arm.runs[0].log)}: {arm.name}",
        "clock": arm.runs[0].clock,
        **verdict_fields(found, SPEED, base=base.name, arm=arm.name),
        "of": attribution(base, arm),
    }


def seconds_per_image(log: RunLog) -> Estimate | None:
    """Return the mean seconds of an image, without the first image of each start.

    An inference run records every image, a fine-tuning run each set of samples.
    """
    seconds = [r["image_s"] for r in log.evaluations if is_number(r.get("image_s"))]
    for record in log.evaluations:
        images, drawn_s, first_s = (
            record.get(name) for name in ("drawn_images", "drawn_s", "first_image_s")
        )
        if is_number(images) and is_number(drawn_s) and is_number(first_s) and images > 1:
            seconds.append((drawn_s - first_s) / (images - 1))
    return mean_of(np.array(seconds)).estimate() if seconds else None


def image_rows(logs: Sequence[RunLog]) -> list[dict[str, Any]]:
    """Return a row per run that generated images: seconds per image, and start-up separately."""
    found = [
        {
            "device": device(log),
            "run": log.name,
            "images": sum("image_s" in record for record in log.evaluations) or None,
            **_estimate("image_s", seconds_per_image(log)),
            **{name: _newest(log, name) for name in _STARTUP},
        }
        for log in logs
    ]
    return sorted(found, key=lambda row: (str(row["device"]), row["run"]))


def display_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for people, with its interval in one column."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name == "low":
            found["95 %"] = interval_text(row["low"], row["high"], ".4g") or None
        elif name.endswith("_gain"):
            half = row[f"{name}_95"]
            found[name] = None if None in (value, half) else f"{value:.4g} ± {half:.2g}"
        elif name == "verdict":
            found[name] = row["word"]
        elif name not in _FOR_PROGRAMS and not name.endswith("_gain_95"):
            found[name] = value
    return found


def settings(log: RunLog) -> dict[str, str]:
    """Return the values of `SETTINGS` in words, such as `rank 16`; unknown ones are left out."""
    known = {**(log.config or {}), **log.facts}
    found = {}
    for name, word in SETTINGS.items():
        if (value := known.get(name)) is not None:
            text = ", ".join(map(str, value)) + " px" if isinstance(value, list) else str(value)
            found[name] = f"{word} {text}".strip()
    return found


def _newest(log: RunLog, name: str) -> float | None:
    values = [record[name] for record in log.evaluations if is_number(record.get(name))]
    return float(values[-1]) if values else None
