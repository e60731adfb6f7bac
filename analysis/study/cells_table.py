"""A row per cell of a study: levels, rate over repeats, speedup, and loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.finetune import seconds_per_image
from analysis.measure.loss import loss_curve, pair_curves, pooled_verdict, same_quantity
from analysis.measure.speed import Arm, group_arms, measure_rates
from analysis.measure.speed_table import paired_text, speed_rows, speedup_text
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.stats.intervals import repeats_mean
from analysis.study.cells import factors_of, peak_memory_gb
from analysis.table import interval_text, percent_text
from configs.errors import Unreadable
from configs.table import heading

# A curve's final value is the mean of this share of it: the last value alone is noisy.
FINAL_SHARE = 0.1
MACHINE = (
    "gpu", "gpu_memory_gb", "cpu", "nodes", "ranks", "versions.torch", "versions.cuda", "code",
)  # fmt: skip


def cell_rows(
    logs: Sequence[RunLog], *, of: str = "loss", by: str = "images", margin: float = 0.01
) -> list[dict[str, Any]]:
    """Return one row per cell, the first being the baseline; absent values are None.

    `verdict` compares the curves `of` over the axis `by` within `margin`: of three or more seeds
    that both cells have by their scatter, otherwise of the first repeats. Evaluations of one run
    are too rare for a verdict. The column `of` is the mean over repeats of a curve's last tenth.
    """
    compared = group_arms(measure_rates(logs))
    factors, levels = factors_of([arm.runs[0].log for arm in compared])
    # Runs that ended before they knew their GPU may have the levels of another cell.
    is_told = len(compared) == len({*levels}) > 1
    found = []
    for arm, row, own in zip(compared, speed_rows(compared), levels, strict=True):
        found.append(
            dict(zip(factors, own, strict=True))
            | {"cell": None if is_told else arm.name, "runs": len(arm.runs)}
            | {name: row[name] for name in row if name not in ("run", "clock", "verdict")}
            | {"speed": row["verdict"]}
            | _image_seconds(arm)
            | {"gpu_gb": max(filter(None, (peak_memory_gb(r.log) for r in arm.runs)), default=None)}
            | _final_values(compared[0], arm, of)
            | {"verdict": _verdict(compared[0], arm, of=of, by=by, margin=margin)}
            | {"ended_early": _early_ends(arm)}
        )
    return found


def _image_seconds(arm: Arm) -> dict[str, float | None]:
    """Return seconds per generated image, with the interval between repeats or within one run."""
    each = [found for run in arm.runs if (found := seconds_per_image(run.log)) is not None]
    if not each:
        return dict.fromkeys(("image_s", "image_s_low", "image_s_high"))
    found = repeats_mean(np.array([one.value for one in each])) if len(each) > 1 else each[0]
    return {"image_s": found.value, "image_s_low": found.low, "image_s_high": found.high}


def _final_values(base: Arm, arm: Arm, of: str) -> dict[str, float | None]:
    """Return a curve's final value, and for an evaluation its ratio to the first cell's."""
    own, first = _final_value(arm, of), _final_value(base, of)
    if of == "loss":
        return {of: own}
    compared = arm is not base and same_quantity(base.runs[0].log, arm.runs[0].log, of)
    return {of: own, f"{of}_ratio": own / first if own and first and compared else None}


def _final_value(arm: Arm, of: str) -> float | None:
    values = []
    for run in arm.runs:
        try:
            losses = loss_curve(run.log, by="step", of=of).loss
        except Unreadable:
            continue
        values.append(float(losses[-max(1, int(FINAL_SHARE * len(losses))) :].mean()))
    return float(np.mean(values)) if values else None


def _verdict(base: Arm, arm: Arm, *, of: str, by: str, margin: float) -> str | None:
    if arm is base:
        return None
    own, first = _by_seed(arm), _by_seed(base)
    seeds = [seed for seed in first if seed in own]
    try:
        pairs = [pair_curves(first[seed], own[seed], by=by, of=of) for seed in seeds]
        if pooled := pooled_verdict(pairs, margin=margin):
            return pooled
        if of != "loss":
            return None
        return pair_curves(base.runs[0].log, arm.runs[0].log, by=by).verdict(margin=margin)
    except Unreadable:
        return None


def _by_seed(arm: Arm) -> dict[Any, RunLog]:
    """Return a run of each seed: repeats of one seed have the same losses."""
    return {(run.log.config or {}).get("seed"): run.log for run in arm.runs}


def _early_ends(arm: Arm) -> str | None:
    """Return why repeats ended before their last step."""
    states = [run.log.state for run in arm.runs if not run.log.state.is_done]
    reasons = ["not ended" if one.is_started else one.reason or one.name for one in states]
    return ", ".join(dict.fromkeys(reasons)) or None


def display_cell(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for people, with intervals in one column."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if name == "speedup" and value is not None:
            out[name] = speedup_text(row)
        elif name == "rounds":
            out["paired by"] = paired_text(row)
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
        elif name in ("speed", "verdict"):
            out["speed verdict" if name == "speed" else "loss verdict"] = value
        elif name not in ("unit", "narrower") and not name.endswith(("_low", "_high", "_6n")):
            out[heading(name).replace(" gb", " GB")] = value
    return out


def hardware_text(logs: Sequence[RunLog]) -> str:
    """Return the hardware and versions of all runs as a phrase; `or` joins different values."""
    machines = [machine(log.facts) for log in logs]
    parts = []
    for name in MACHINE:
        values = dict.fromkeys(str(facts[name]) for facts in machines if name in facts)
        if values:
            parts.append(f"{name.removeprefix('versions.')} {' or '.join(values)}")
    return ", ".join(parts)
