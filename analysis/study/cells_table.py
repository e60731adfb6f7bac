"""A row per cell of a study: its levels, its rate over repeats, its speedup, and its loss."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.clocks import choose_clocks
from analysis.measure.finetune import seconds_per_image
from analysis.measure.loss import loss_curve, pair_curves
from analysis.measure.speed import Arm, group_arms, measure_rate
from analysis.measure.speed_table import interval_text, percent_text, speed_rows, speedup_text
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, repeats_mean
from analysis.study.cells import factors_of
from configs.errors import Unreadable

# Where the last value of a curve is noise, its last tenth is what it came to.
LAST = 0.1
MACHINE = (
    "gpu",
    "gpu_memory_gb",
    "cpu",
    "nodes",
    "ranks",
    "versions.torch",
    "versions.cuda",
    "code",
)


def cell_rows(
    logs: Sequence[RunLog], *, of: str = "loss", by: str = "images", margin: float = 0.01
) -> list[dict[str, Any]]:
    """One row per cell, the first the baseline; absent values are None.

    `verdict` is on the whole curves of the training loss of the first repeats over `by`, the same
    within `margin`. The column `of` is the mean of a curve's last tenth, over repeats; of an
    evaluation, which is made too seldom for a verdict, its ratio to the first cell's stands beside.
    """
    clocks = choose_clocks(logs)
    compared = group_arms(
        [measure_rate(log, clock=clock) for log, clock in zip(logs, clocks, strict=True)]
    )
    factors, levels = factors_of([arm.runs[0].log for arm in compared])
    found = []
    for arm, row, mine in zip(compared, speed_rows(compared), levels, strict=True):
        found.append(
            dict(zip(factors, mine, strict=True))
            | {"cell": None if factors else arm.name, "runs": len(arm.runs)}
            | {name: row[name] for name in row if name not in ("run", "clock", "verdict")}
            | {"speed": row["verdict"]}
            | _drawing(arm)
            | {"gpu_gb": _peak(arm)}
            | _reached(compared[0], arm, of)
            | {"verdict": None if arm is compared[0] else _verdict(compared[0], arm, by, margin)}
            | {"ended_early": _ending(arm)}
        )
    return found


def _drawing(arm: Arm) -> dict[str, float | None]:
    """Seconds per image of an arm that draws, from its images or from the scatter of its runs."""
    told = [each for run in arm.runs if (each := seconds_per_image(run.log)) is not None]
    if len(told) > 1:
        found = repeats_mean(np.array([each.value for each in told]))
    else:
        found = told[0] if told else Estimate(value=math.nan)
    value = found.value if told else None
    return {"image_s": value, "image_s_low": found.low, "image_s_high": found.high}


def _reached(base: Arm, arm: Arm, of: str) -> dict[str, float | None]:
    """What a curve came to, and of an evaluation what that is of the first cell's."""
    mine, first = _last(arm, of), _last(base, of)
    if of == "loss":
        return {of: mine}
    return {of: mine, f"{of}_ratio": mine / first if mine and first and arm is not base else None}


def _last(arm: Arm, of: str) -> float | None:
    told = []
    for run in arm.runs:
        try:
            losses = loss_curve(run.log, by="step", of=of).loss
        except Unreadable:
            continue
        told.append(float(losses[-max(1, int(LAST * len(losses))) :].mean()))
    return float(np.mean(told)) if told else None


def _verdict(base: Arm, arm: Arm, by: str, margin: float) -> str | None:
    try:
        found = pair_curves(base.runs[0].log, arm.runs[0].log, by=by)
    except Unreadable:
        return None
    return found.verdict(margin=margin)


def _peak(arm: Arm) -> float | None:
    """The most that a rank's allocator held, in GB."""
    columns = [run.log.column("gpu_gb") for run in arm.runs]
    seen = [float(np.nanmax(column)) for column in columns if (column > 0).any()]
    return max(seen) if seen else None


def _ending(arm: Arm) -> str | None:
    """Of what those repeats ended that did not reach their last step."""
    states = [run.log.state or {} for run in arm.runs]
    short = [str(s.get("reason") or s.get("event")) for s in states if s.get("event") != "done"]
    return ", ".join(dict.fromkeys(short)) or None


def display_cell(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as a person reads it: a figure with its interval in one column."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if name == "speedup" and value is not None:
            out[name] = speedup_text(row)
        elif name == "steps_per_s":
            out["steps/s"] = value
            out["95 %"] = (
                interval_text(row["steps_per_s_low"], row["steps_per_s_high"], ".4g") or None
            )
        elif name == "image_s":
            out["s/image"] = value
            out["s/image 95 %"] = (
                interval_text(row["image_s_low"], row["image_s_high"], ".4g") or None
            )
        elif name in ("mfu", "hfu"):
            out[name.upper()] = percent_text(value)
        elif name != "speed" and not name.endswith(("_low", "_high", "_6n")):
            out[_heading(name)] = value
    return out


def _heading(name: str) -> str:
    """A column's name in words; that of a key of the config stays what one types."""
    if "." in name:
        return name
    return name.replace("_per_", "/").replace("_gb", " GB").replace("_", " ")


def hardware_text(logs: Sequence[RunLog]) -> str:
    """What all of them ran on, as a sentence; what differs between them is told with all values."""
    seen = [machine(log.facts) for log in logs]
    said = []
    for name in MACHINE:
        values = dict.fromkeys(str(facts[name]) for facts in seen if name in facts)
        if values:
            said.append(f"{name.removeprefix('versions.')} {' or '.join(values)}")
    return ", ".join(said)
