"""The tables of a comparison of speed: rates, where the time went, and what differs."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.measure.differences import Difference, differences, yaml_text
from analysis.measure.mfu import hfu, mfu, naive_mfu
from analysis.measure.speed import Arm, pooled_rate, speedup, verdict
from analysis.read.run_log import RunLog


def speed_rows(compared: Sequence[Arm]) -> list[dict[str, Any]]:
    """One row per arm, the first the baseline; absent values are None."""
    base = compared[0]
    return [_row(base, arm) for arm in compared]


def _row(base: Arm, arm: Arm) -> dict[str, Any]:
    ratio = None if arm is base else speedup(base, arm)
    rate = pooled_rate(arm)
    per_step = arm.runs[0].images_per_step
    images_per_s = rate.value * per_step if rate and per_step else None
    return {
        "run": arm.name,
        "clock": arm.runs[0].clock,
        "steps_per_s": rate.value if rate else None,
        "steps_per_s_low": rate.low if rate else None,
        "steps_per_s_high": rate.high if rate else None,
        "images_per_s": images_per_s,
        **utilisation(arm.runs[0].log, images_per_s),
        "speedup": ratio.value if ratio else None,
        "speedup_low": ratio.low if ratio else None,
        "speedup_high": ratio.high if ratio else None,
        "verdict": _base_verdict(arm) if arm is base else verdict(base, arm, ratio),
    }


def _base_verdict(arm: Arm) -> str:
    rate = arm.runs[0].rate
    return "baseline" if rate is not None and rate.is_determined else "undetermined"


def utilisation(log: RunLog, images_per_s: float | None) -> dict[str, float | None]:
    """The share of the peak, counted in three ways."""
    return {
        "mfu": mfu(log, images_per_s),
        "hfu": hfu(log, images_per_s),
        "mfu_naive_6n": naive_mfu(log, images_per_s),
    }


def flops_rows(compared: Sequence[Arm]) -> list[dict[str, Any]]:
    """What a run computes per image, and its utilisation counted in three ways."""
    found = []
    for arm in compared:
        log, rate = arm.runs[0].log, pooled_rate(arm)
        per_step = arm.runs[0].images_per_step
        images_per_s = rate.value * per_step if rate and per_step else None
        row: dict[str, Any] = {
            "run": arm.name,
            "training_flops_per_image": log.facts.get("training_flops_per_image"),
            "recomputed_macs_per_image": log.facts.get("recomputed_macs_per_image"),
        }
        found.append(row | utilisation(log, images_per_s))
    return found


def time_rows(compared: Sequence[Arm]) -> list[dict[str, Any]]:
    """Where the time of each run went, in seconds, and its end-to-end rate."""
    found = []
    for run in (run for arm in compared for run in arm.runs):
        if run.accounting is None:
            continue
        parts = run.accounting.seconds.items()
        spent = {f"{name}_s": round(value, 3) for name, value in parts if value >= 0.0005}
        row: dict[str, Any] = {
            "run": run.log.name,
            "end_to_end_steps_per_s": run.accounting.steps_per_s,
            "wall_s": run.accounting.wall_s,
        }
        found.append(row | spent)
    return found


def difference_rows(base: Arm, arm: Arm) -> list[dict[str, Any]]:
    """What else differs between an arm and the baseline."""
    found: list[Difference] = differences(base.runs[0].log, arm.runs[0].log)
    return [
        {
            "differs": item.name,
            "affects": " ".join(sorted(item.affects)) or "nothing",
            "from": yaml_text(item.a),
            "to": yaml_text(item.b),
        }
        for item in found
    ]


def display_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of figures as a person reads it."""
    return {
        "run": row["run"],
        "clock": row["clock"],
        "steps/s": row["steps_per_s"],
        "95 %": interval_text(row["steps_per_s_low"], row["steps_per_s_high"], ".4g"),
        "images/s": row["images_per_s"],
        "MFU": percent_text(row["mfu"]),
        "HFU": percent_text(row["hfu"]),
        "by 6N": percent_text(row["mfu_naive_6n"]),
        "speedup": _speedup(row),
        "verdict": row["verdict"],
    }


def percent_text(share: float | None) -> str | None:
    """A share as a person reads it."""
    return None if share is None else f"{share:.1%}"


def _speedup(row: Mapping[str, Any]) -> str:
    if row["speedup"] is None:
        return ""
    return speedup_text(row)


def speedup_text(row: Mapping[str, Any]) -> str:
    """`1.93x [1.90, 1.96]`."""
    between = interval_text(row["speedup_low"], row["speedup_high"], ".2f")
    return f"{row['speedup']:.2f}x {between}".rstrip()


def interval_text(low: float | None, high: float | None, form: str) -> str:
    """`[low, high]`, or nothing where an end is not known."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"
