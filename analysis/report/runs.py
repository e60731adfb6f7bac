"""The table of runs that a page filters, and the data of its script: columns, settings, curves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.gpus.cost import cost_row
from analysis.measure.arms import group_arms
from analysis.measure.detectors import detect
from analysis.measure.differences import yaml_text
from analysis.measure.loss_curve import AXES, held_out_losses, why_unlike
from analysis.measure.overview import run_row
from analysis.measure.rate import measure_rate
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.report.curves import ALL_POINTS, MOST_POINTS, curves, mean_curve
from analysis.report.html import aside
from analysis.study.cells import seconds_per_image, started_runs

# Evaluations whose last value is a column.
EVALUATED = ("validation_loss", "validation_gain", "held_out_loss", "fid_inf", "recognised")
COLUMNS = (
    "state", "step", "steps", "loss", *EVALUATED, "steps_per_s", "images_per_s", "mfu",
    "tokens_per_s_per_device", "image_s", "gpu", "ranks", "attempts", "gpu_hours",
    "energy_kwh", "findings", "where", "format",
)  # fmt: skip
FEWEST_POINTS = 50
# A page of more runs holds only the curves that are compared most often.
FEW_RUNS = 12


def table_row(log: RunLog) -> dict[str, Any]:
    """Return the row of one run; unknown values are None."""
    known = cost_row(log) | run_row(log)
    drawn = seconds_per_image(log)
    known |= {"findings": len(detect(log)), "image_s": drawn and drawn.value}
    others = held_out_losses([log])
    for one in log.evaluations:
        known |= {name: one[name] for name in (*EVALUATED, *others) if name in one}
    return {"run": log.name} | {name: known.get(name) for name in (*COLUMNS, *others)}


def runs_data(logs: Sequence[RunLog], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the script filters and compares by: columns, and the settings that vary."""
    every = [_settings(log) for log in logs]
    names = dict.fromkeys(name for settings in every for name in settings)
    columns = {name: [settings.get(name) for settings in every] for name in names}
    shown = dict.fromkeys(name for row in rows for name in row)
    return {
        "columns": {name: [_finite(row.get(name)) for row in rows] for name in shown},
        "keys": {name: column for name, column in columns.items() if len(set(column)) > 1},
    }


def _finite(value: Any) -> Any:
    """Return a value that JSON can hold: a diverged loss is the text `inf`."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _settings(log: RunLog) -> dict[str, str]:
    known = dict(log.config or {}) | machine(log.facts)
    return {name: yaml_text(value) for name, value in known.items() if name != "name"}


def curves_data(logs: Sequence[RunLog]) -> dict[str, Any]:
    """Return the curves of runs, and before them the mean of each arm of three seeds or more.

    `rows` are the runs of a curve in the table; a run is `alone` if its arm has no mean.
    """
    most = max(min(MOST_POINTS, ALL_POINTS // len(logs)), FEWEST_POINTS)
    place = {id(log): number for number, log in enumerate(logs)}
    means, alone = [], {*place.values()}
    for arm in group_arms([measure_rate(log, clock=None) for log in started_runs(logs)]):
        rows = [place[id(run.log)] for run in arm.runs]
        if mean := mean_curve(arm, most=most):
            name = f"mean of {arm.name}"
            means.append({"name": name, "rows": rows, "mean": True, "curves": {"loss": mean}})
            alone -= {*rows}
    drawn = []
    for number, log in enumerate(logs):
        own = curves(log, most=most)
        most_asked = ("loss", *EVALUATED, *held_out_losses([log]))
        few = {name: own[name] for name in most_asked if name in own}
        kept = own if len(logs) <= FEW_RUNS else few
        one = {"name": log.name, "rows": [number], "alone": number in alone, "curves": kept}
        drawn += [one] if kept else []
    return {"axes": AXES, "curves": [*means, *drawn]}


def curves_parts(data: Mapping[str, Any], logs: Sequence[RunLog]) -> list[str]:
    """Return the place of the curves, which the script draws, and remarks on them."""
    if not data["curves"]:
        return []
    known = {row for one in data["curves"] if "loss" in one["curves"] for row in one["rows"]}
    with_loss = [logs[row] for row in sorted(known)]
    remarks = ["Long curves are thinned to the least and the largest value of equal stretches."]
    if any(why_unlike(with_loss[0], log, "loss") for log in with_loss):
        remarks.append(
            "Some training losses are of other objectives, images, or latents of another VAE: only "
            "losses of the same quantity can be compared."
        )
    place = '<div id="curves-plot"></div><noscript><p>Curves need JavaScript.</p></noscript>'
    return [place, *map(aside, remarks)]
