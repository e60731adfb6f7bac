"""Tables of a speed comparison: rates, utilisation, time by purpose, and differences."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.gpus.mfu import mfu
from analysis.measure.differences import differences, independent, yaml_text
from analysis.measure.speed import SPEED, Arm, speed_contrasts
from analysis.stats.intervals import estimate_fields
from analysis.verdict import against_first


def speed_rows(runs: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return one row per run, the first being the baseline; absent values are None."""
    names = [run.name for run in runs]
    verdicts = against_first(speed_contrasts(runs), SPEED, names=names)
    return [_speed_row(*pair) for pair in zip(runs, verdicts, strict=True)]


def _speed_row(run: Arm, verdict: Mapping[str, Any]) -> dict[str, Any]:
    (measured,) = run.runs
    row = {"run": run.name, "clock": measured.clock, **rate_fields(run), **verdict}
    is_baseline = verdict["word"] is None
    if is_baseline and (why := measured.why_undetermined):
        sentence = f"the speed of {run.name} is undetermined: {why}"
        return row | {"word": "undetermined", "verdict": sentence, "why": why}
    return row


def rate_fields(arm: Arm) -> dict[str, Any]:
    """Return the rate of an arm, in steps or in the units that its clock counts, and its use."""
    first, rate = arm.runs[0], arm.rate
    per_unit = first.images_per_unit
    images_per_s = rate.value * per_unit if rate and per_unit else None
    return {
        "counts": first.unit,
        **estimate_fields("units_per_s", rate if first.unit != "step" else None),
        **estimate_fields("steps_per_s", rate if first.unit == "step" else None),
        "images_per_s": images_per_s,
        "mfu": mfu(first.log, images_per_s),
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
    return [
        {
            "differs": item.name,
            "affects": " ".join(sorted(item.affects)) or "nothing",
            "from": yaml_text(item.a),
            "to": yaml_text(item.b),
        }
        for item in independent(differences(base.runs[0].log, arm.runs[0].log))
    ]
