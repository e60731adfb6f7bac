"""Tables of a speed comparison: rates, utilisation, time by purpose, and differences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.differences import differences, independent, yaml_text
from analysis.measure.mfu import hfu, mfu, naive_mfu
from analysis.measure.speed import Arm, by_rounds, pooled_rate, speedup, verdict
from analysis.stats.intervals import Estimate, estimate_fields
from analysis.table import interval_text, percent_text

# Of a speedup, after the point.
MOST_DIGITS = 5


def speed_rows(compared: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return one row per arm, the first being the baseline; absent values are None."""
    return [_speed_row(compared[0], arm) for arm in compared]


def _speed_row(base: Arm, arm: Arm) -> dict[str, Any]:
    ratio = None if arm is base else speedup(base, arm)
    paired = by_rounds(base, arm) if ratio else None
    rate, unit = pooled_rate(arm), arm.runs[0].unit
    return {
        "run": arm.name,
        "clock": arm.runs[0].clock,
        "unit": unit,
        **estimate_fields("units_per_s", rate if unit != "step" else None),
        **estimate_fields("steps_per_s", rate if unit == "step" else None),
        "images_per_s": _images_per_s(arm, rate),
        **_utilisation(arm, rate),
        "host_bound": _host_bound(arm),
        **estimate_fields("speedup", ratio),
        "rounds": paired.rounds if paired else None,
        "narrower": paired.narrower if paired else None,
        "verdict": _base_verdict(arm) if arm is base else verdict(base, arm, ratio),
    }


def _base_verdict(arm: Arm) -> str:
    rate = arm.runs[0].rate
    return "baseline" if rate is not None and rate.is_determined else "undetermined"


def _images_per_s(arm: Arm, rate: Estimate | None) -> float | None:
    per_unit = arm.runs[0].images_per_unit
    return rate.value * per_unit if rate and per_unit else None


def _host_bound(arm: Arm) -> float | None:
    """Return the mean share of steps for whose launch a GPU waited, if the records have it."""
    shares = arm.runs[0].log.column("host_bound")
    return float(np.nanmean(shares)) if (shares >= 0).any() else None


def _utilisation(arm: Arm, rate: Estimate | None) -> dict[str, float | None]:
    """Return the share of the peak, counted in three ways."""
    log, images_per_s = arm.runs[0].log, _images_per_s(arm, rate)
    return {
        "mfu": mfu(log, images_per_s),
        "hfu": hfu(log, images_per_s),
        "mfu_naive_6n": naive_mfu(log, images_per_s),
    }


def time_rows(compared: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return the seconds of each run by purpose, and its end-to-end rate."""
    found = []
    for run in (run for arm in compared for run in arm.runs):
        if run.breakdown is None:
            continue
        parts = run.breakdown.seconds.items()
        spent = {f"{name}_s": round(value, 3) for name, value in parts if value >= 0.0005}
        row: dict[str, Any] = {
            "run": run.log.name,
            "end_to_end_steps_per_s": run.breakdown.steps_per_s,
            "wall_s": run.breakdown.wall_s,
        }
        found.append(row | spent)
    return found


def difference_rows(base: Arm, arm: Arm) -> list[dict[str, Any]]:
    """Return a row per difference between an arm and the baseline."""
    found = differences(base.runs[0].log, arm.runs[0].log)
    kept = independent(found)
    return [
        {
            "differs": item.name,
            "affects": " ".join(sorted(item.affects)) or "nothing",
            "from": yaml_text(item.a),
            "to": yaml_text(item.b),
        }
        for item in found
        if item in kept or item.name.startswith("unlike_native")
    ]


def display_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `speed_rows` for people; a rate that counts no steps names its unit."""
    per_s = row["steps_per_s"]
    kind = "steps" if row["unit"] == "step" else "units"
    if kind == "units" and row["units_per_s"] is not None:
        per_s = f"{row['units_per_s']:.4g} {row['unit']}s/s"
    return {
        "run": row["run"],
        "clock": row["clock"],
        "steps/s": per_s,
        "95 %": interval_text(row[f"{kind}_per_s_low"], row[f"{kind}_per_s_high"], ".4g"),
        "images/s": row["images_per_s"],
        "MFU": percent_text(row["mfu"]),
        "HFU": percent_text(row["hfu"]),
        "by 6N": percent_text(row["mfu_naive_6n"]),
        "host-bound": percent_text(row["host_bound"]),
        "speedup": "" if row["speedup"] is None else speedup_text(row),
        "paired by": paired_text(row),
        "speed verdict": row["verdict"],
    }


def speedup_text(row: Mapping[str, Any]) -> str:
    """Return `1.93x [1.90, 1.96]`, with more digits if these hide a width or an end beside 1."""
    low, high = row["speedup_low"], row["speedup_high"]
    digits = 2
    while digits < MOST_DIGITS and low and high and _is_hidden(low, high, digits):
        digits += 1
    between = interval_text(low, high, f".{digits}f")
    return f"{row['speedup']:.{digits}f}x {between}".rstrip()


def paired_text(row: Mapping[str, Any]) -> str | None:
    """Return `6 rounds: interval 3.1x narrower`, than that of the same turns unpaired."""
    if row["rounds"] is None:
        return None
    by, word = row["narrower"], "narrower"
    if by < 1:
        by, word = 1 / by, "wider"
    return f"{row['rounds']} rounds: interval {by:.1f}x {word}"


def _is_hidden(low: float, high: float, digits: int) -> bool:
    """Return whether rounding leaves an interval no width, or moves an end onto 1."""
    ends = round(low, digits), round(high, digits)
    return low < high and (ends[0] == ends[1] or ends[0] <= 1 < low or high < 1 <= ends[1])
