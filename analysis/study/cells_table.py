"""A row per cell of a study: levels, rate over repeats, speedup, and loss."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.measure.loss import Compared, final_loss
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, Arm, group_arms
from analysis.measure.speed_table import rate_fields
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.stats.intervals import estimate_fields
from analysis.stats.samples import one_sample
from analysis.study.cells import factors_of, peak_memory_gb, seconds_per_image
from analysis.study.compare import compare_arms
from analysis.verdict import FIELDS
from configs.table import Row

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
    found = compare_arms(arms, [compared], if_known=False, as_cells=True)
    return rows_of(arms, found, of=compared.of)


def rows_of(arms: Sequence[Arm], found: Sequence[Row], *, of: str = "loss") -> list[dict[str, Any]]:
    """Return one row per cell with what rows of `compare_arms` say about speed and `of`."""
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    # Runs that ended before they knew their GPU may have the levels of another cell.
    is_told = len(arms) == len({*levels}) > 1
    rows = []
    for arm, own in zip(arms, levels, strict=True):
        peaks = filter(None, (peak_memory_gb(run.log) for run in arm.runs))
        rows.append(
            dict(zip(factors, own, strict=True))
            | {"cell": None if is_told else arm.name, "runs": len(arm.runs)}
            | rate_fields(arm)
            | _verdict(found, arm, SPEED.name)
            | _image_seconds(arm)
            | {"gpu_gb": max(peaks, default=None), of: _final_value(arm, of)}
            | _verdict(found, arm, Compared(of=of).quantity.name, prefix="loss_")
            | {"ended_early": _early_ends(arm)}
        )
    return rows


def _verdict(found: Sequence[Row], arm: Arm, quantity: str, *, prefix: str = "") -> dict[str, Any]:
    """Return the fields of an arm's verdict on a quantity; None for the first arm's."""
    own = (row for row in found if (row["run"], row["quantity"]) == (arm.name, quantity))
    row = next(own, {})
    return {f"{prefix}{name}": row.get(name) for name in FIELDS}


def _final_value(arm: Arm, of: str) -> float | None:
    known = [mean.value for run in arm.runs if (mean := final_loss(run.log, of=of)) is not None]
    return float(np.mean(known)) if known else None


def _image_seconds(arm: Arm) -> dict[str, float | None]:
    """Return seconds per generated image, with the interval between repeats or within one run."""
    each = [found for run in arm.runs if (found := seconds_per_image(run.log)) is not None]
    if len(each) > 1:
        return estimate_fields("image_s", one_sample(np.log([one.value for one in each])).ratio())
    return estimate_fields("image_s", each[0] if each else None)


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
