"""A row per cell of a study: levels, rate over repeats, speedup, and loss."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.measure.loss import Compared, final_loss
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, Arm, group_arms, pooled_rate
from analysis.measure.speed_table import rate_fields
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.stats.samples import one_sample
from analysis.study.cells import factors_of, peak_memory_gb, seconds_per_image
from analysis.study.compare import Comparison, compare_arms
from analysis.verdict import verdict_fields

MACHINE = (
    "gpu", "gpu_memory_gb", "cpu", "nodes", "ranks", "versions.torch", "versions.cuda", "code",
)  # fmt: skip


def cell_rows(logs: Sequence[RunLog], *, compared: Compared) -> list[dict[str, Any]]:
    """Return one row per cell, the first being the baseline; absent values are None.

    The fields of the judgement are about the speed, and with `loss_` before them about what is
    `compared`; all of them share one error. The column of what is compared is the mean over the
    repeats.
    """
    arms = group_arms(measure_rates(logs))
    found = compare_arms(arms, [compared], quality=False, as_cells=True)
    return rows_of(arms, found, of=compared.of)


def rows_of(
    arms: Sequence[Arm], found: Sequence[Comparison], *, of: str = "loss"
) -> list[dict[str, Any]]:
    """Return one row per cell with its comparisons in speed and `of`, as `cell_rows` does."""
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    # Runs that ended before they knew their GPU may have the levels of another cell.
    is_told = len(arms) == len({*levels}) > 1
    rows = []
    for arm, own in zip(arms, levels, strict=True):
        peaks = filter(None, (peak_memory_gb(run.log) for run in arm.runs))
        rows.append(
            dict(zip(factors, own, strict=True))
            | {"cell": None if is_told else arm.name, "runs": len(arm.runs)}
            | rate_fields(arm, pooled_rate(arm))
            | _judged(found, arm, SPEED.name)
            | _image_seconds(arm)
            | {"gpu_gb": max(peaks, default=None), of: _final_value(arm, of)}
            | _judged(found, arm, of.replace("_", " "), prefix="loss_")
            | {"ended_early": _early_ends(arm)}
        )
    return rows


def _judged(
    found: Sequence[Comparison], arm: Arm, name: str, *, prefix: str = ""
) -> dict[str, Any]:
    """Return the fields of an arm's comparison in a quantity; None for the first arm's."""
    own = (one for one in found if one.arm is arm and one.quantity.name == name)
    if (one := next(own, None)) is not None:
        return one.fields(prefix=prefix)
    return verdict_fields(None, SPEED, base="", arm="", prefix=prefix)


def _final_value(arm: Arm, of: str) -> float | None:
    known = [mean.value for run in arm.runs if (mean := final_loss(run.log, of=of)) is not None]
    return float(np.mean(known)) if known else None


def _image_seconds(arm: Arm) -> dict[str, float | None]:
    """Return seconds per generated image, with the interval between repeats or within one run."""
    each = [found for run in arm.runs if (found := seconds_per_image(run.log)) is not None]
    if not each:
        return dict.fromkeys(("image_s", "image_s_low", "image_s_high"))
    if len(each) > 1:
        logs = np.log([one.value for one in each])
        found = one_sample(logs).estimate().map(math.exp)
    else:
        found = each[0]
    return {"image_s": found.value, "image_s_low": found.low, "image_s_high": found.high}


def _early_ends(arm: Arm) -> str | None:
    """Return why repeats ended before their last step; a log without events does not tell."""
    states = [run.log.state for run in arm.runs if run.log.events and not run.log.state.is_done]
    reasons = ["not ended" if one.is_started else one.reason or one.name for one in states]
    return ", ".join(dict.fromkeys(reasons)) or None


def hardware_text(logs: Sequence[RunLog]) -> str:
    """Return the hardware and versions of all runs as a phrase; `or` joins different values."""
    machines = [machine(log.facts) for log in logs]
    parts = []
    for name in MACHINE:
        values = dict.fromkeys(str(facts[name]) for facts in machines if name in facts)
        if values:
            parts.append(f"{name.removeprefix('versions.')} {' or '.join(values)}")
    return ", ".join(parts)
