"""Tables of a speed comparison: rates, utilisation, time by purpose, and differences."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.measure.differences import differences, yaml_text
from analysis.measure.mfu import hfu, mfu, naive_mfu
from analysis.measure.speed import Arm, pooled_rate, speedup, verdict
from analysis.stats.intervals import Estimate
from analysis.table import interval_text, percent_text


def speed_rows(compared: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return one row per arm, the first being the baseline; absent values are None."""
    return [_speed_row(compared[0], arm) for arm in compared]


def _speed_row(base: Arm, arm: Arm) -> dict[str, Any]:
    ratio = None if arm is base else speedup(base, arm)
    rate = pooled_rate(arm)
    return {
        "run": arm.name,
        "clock": arm.runs[0].clock,
        "steps_per_s": rate.value if rate else None,
        "steps_per_s_low": rate.low if rate else None,
        "steps_per_s_high": rate.high if rate else None,
        "images_per_s": _images_per_s(arm, rate),
        **_utilisation(arm, rate),
        "speedup": ratio.value if ratio else None,
        "speedup_low": ratio.low if ratio else None,
        "speedup_high": ratio.high if ratio else None,
        "verdict": _base_verdict(arm) if arm is base else verdict(base, arm, ratio),
    }


def _base_verdict(arm: Arm) -> str:
    rate = arm.runs[0].rate
    return "baseline" if rate is not None and rate.is_determined else "undetermined"


def _images_per_s(arm: Arm, rate: Estimate | None) -> float | None:
    per_step = arm.runs[0].images_per_step
    return rate.value * per_step if rate and per_step else None


def _utilisation(arm: Arm, rate: Estimate | None) -> dict[str, float | None]:
    """Return the share of the peak, counted in three ways."""
    log, images_per_s = arm.runs[0].log, _images_per_s(arm, rate)
    return {
        "mfu": mfu(log, images_per_s),
        "hfu": hfu(log, images_per_s),
        "mfu_naive_6n": naive_mfu(log, images_per_s),
    }


def flops_rows(compared: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return the FLOPs per image of each arm, and its utilisation counted in three ways."""
    counts = ("training_flops_per_image", "recomputed_macs_per_image")
    return [
        {"run": arm.name}
        | {name: arm.runs[0].log.facts.get(name) for name in counts}
        | _utilisation(arm, pooled_rate(arm))
        for arm in compared
    ]


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
    return [
        {
            "differs": item.name,
            "affects": " ".join(sorted(item.affects)) or "nothing",
            "from": yaml_text(item.a),
            "to": yaml_text(item.b),
        }
        for item in differences(base.runs[0].log, arm.runs[0].log)
    ]


def display_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `speed_rows` for people."""
    return {
        "run": row["run"],
        "clock": row["clock"],
        "steps/s": row["steps_per_s"],
        "95 %": interval_text(row["steps_per_s_low"], row["steps_per_s_high"], ".4g"),
        "images/s": row["images_per_s"],
        "MFU": percent_text(row["mfu"]),
        "HFU": percent_text(row["hfu"]),
        "by 6N": percent_text(row["mfu_naive_6n"]),
        "speedup": "" if row["speedup"] is None else speedup_text(row),
        "verdict": row["verdict"],
    }


def speedup_text(row: Mapping[str, Any]) -> str:
    """Return `1.93x [1.90, 1.96]`."""
    between = interval_text(row["speedup_low"], row["speedup_high"], ".2f")
    return f"{row['speedup']:.2f}x {between}".rstrip()
