"""A row per cell of a study: levels, rate over repeats, speedup, and loss."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.finetune import seconds_per_image
from analysis.measure.loss import Compared, final_loss, loss_contrast
from analysis.measure.speed import (
    SPEED,
    Arm,
    group_arms,
    measure_rates,
    pooled_rate,
    scatter_of_cells,
    speed_contrast,
)
from analysis.measure.speed_table import rate_fields
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.stats.contrast import of_cells, one_sample
from analysis.stats.judge import judge
from analysis.study.cells import factors_of, peak_memory_gb
from analysis.table import interval_text, percent_text
from analysis.verdict import FIELDS, ratio_text, verdict_fields
from configs.table import heading

_OF_JUDGEMENT = frozenset(["counts", *FIELDS, *(f"loss_{name}" for name in FIELDS)])
MACHINE = (
    "gpu", "gpu_memory_gb", "cpu", "nodes", "ranks", "versions.torch", "versions.cuda", "code",
)  # fmt: skip


def cell_rows(logs: Sequence[RunLog], *, compared: Compared) -> list[dict[str, Any]]:
    """Return one row per cell, the first being the baseline; absent values are None.

    The fields of the judgement are those of the speed, and with `loss_` before them those of what
    is `compared`; all of them share one error. The column of that is the mean over the repeats.
    """
    arms = group_arms(measure_rates(logs))
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    # Runs that ended before they knew their GPU may have the levels of another cell.
    is_told = len(arms) == len({*levels}) > 1
    members, of = [[run.log for run in arm.runs] for arm in arms], compared.quantity
    common = scatter_of_cells(arms)
    contrasts = [speed_contrast(arms[0], arm, common=common) for arm in arms[1:]]
    speeds, losses = judge(
        ([of_cells(one, SPEED) for one in contrasts], SPEED),
        ([of_cells(loss_contrast(members[0], own, compared), of) for own in members[1:]], of),
    )
    base = arms[0].name
    rows = []
    for arm, own, speed, loss in zip(arms, levels, [None, *speeds], [None, *losses], strict=True):
        rate = pooled_rate(arm)
        peaks = filter(None, (peak_memory_gb(run.log) for run in arm.runs))
        rows.append(
            dict(zip(factors, own, strict=True))
            | {"cell": None if is_told else arm.name, "runs": len(arm.runs)}
            | rate_fields(arm, rate)
            | verdict_fields(speed, SPEED, base=base, arm=arm.name)
            | _image_seconds(arm)
            | {"gpu_gb": max(peaks, default=None), compared.of: _final_value(arm, compared.of)}
            | verdict_fields(loss, compared.quantity, base=base, arm=arm.name, prefix="loss_")
            | {"ended_early": _early_ends(arm)}
        )
    return rows


def _final_value(arm: Arm, of: str) -> float | None:
    known = [value for run in arm.runs if (value := final_loss(run.log, of=of)) is not None]
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
    """Return why repeats ended before their last step."""
    states = [run.log.state for run in arm.runs if not run.log.state.is_done]
    reasons = ["not ended" if one.is_started else one.reason or one.name for one in states]
    return ", ".join(dict.fromkeys(reasons)) or None


def display_cell(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for people, with intervals in one column."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if name == "word":
            out["speedup"] = ratio_text(row["ratio"], row["low"], row["high"]) or None
            out["speed verdict"] = value
        elif name == "loss_word":
            ratio = ratio_text(row["loss_ratio"], row["loss_low"], row["loss_high"])
            out["loss ratio"] = ratio or None
            out["loss verdict"] = value
        elif name == "steps_per_s":
            out["steps/s"] = value
            out["95 %"] = interval_text(row[f"{name}_low"], row[f"{name}_high"], ".4g") or None
        elif name == "image_s":
            out["s/image"] = value
            out["s/image 95 %"] = (
                interval_text(row[f"{name}_low"], row[f"{name}_high"], ".4g") or None
            )
        elif name in ("mfu", "hfu"):
            out[name.upper()] = percent_text(value)
        elif name not in _OF_JUDGEMENT and not name.endswith(("_low", "_high", "_6n")):
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
