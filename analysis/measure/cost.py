"""The cost of runs: GPU-hours, money by a file of rates, and energy if it was recorded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, ranks
from analysis.read.run_log import RunLog
from configs.errors import ConfigError, Unreadable
from configs.yaml12 import parse_yaml

JOULES_PER_KWH = 3.6e6


def read_rates(path: Path) -> dict[str, float]:
    """Return {GPU: money per GPU-hour} from a YAML file; a name is part of a GPU model's name."""
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"), source=str(path))
    except (ConfigError, OSError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"{path}: cannot be read: {error}") from None
    is_valid = isinstance(tree, dict) and all(
        type(rate) in (int, float) and rate >= 0 for rate in tree.values()
    )
    if not is_valid or not tree:
        raise Unreadable(f"{path}: expected lines such as `A100: 1.80`, the price of a GPU-hour")
    return {str(name): float(rate) for name, rate in tree.items()}


def rate_of(model: str | None, rates: Mapping[str, float]) -> float | None:
    """Return the rate of the longest name that is part of the model's name."""
    fits = [name for name in rates if model and name.lower() in model.lower()]
    return rates[max(fits, key=len)] if fits else None


def cost_rows(logs: Sequence[RunLog], rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return a row per run; unknown values are None.

    `front` marks the runs than which no other is both faster and cheaper (without rates, in
    GPU-hours).
    """
    rows = [_row(log, rates) for log in logs]
    cost = "money" if rates else "gpu_hours"
    front = _front([(row["minutes"], row[cost]) for row in rows])
    return [row | {"front": "front" if n in front else None} for n, row in enumerate(rows)]


def _row(log: RunLog, rates: Mapping[str, float]) -> dict[str, Any]:
    breakdown, model, count = time_breakdown(log), gpu(log.facts), ranks(log.facts)
    rate, images, joules = rate_of(model, rates), log.last("images"), log.last("energy_j")
    # GPUs times the hours for which the run had them.
    hours = count * breakdown.allocated_s / 3600 if breakdown and count else None
    money = rate * hours if rate and hours else None
    return {
        "run": log.name,
        "gpu": model,
        "gpus": count,
        "minutes": breakdown.wall_s / 60 if breakdown else None,
        "gpu_hours": hours,
        "money": money,
        "money_per_million_images": money / images * 1e6 if money and images else None,
        "energy_kwh": None if joules is None else joules / JOULES_PER_KWH,
    }


def _front(points: Sequence[tuple[float | None, float | None]]) -> set[int]:
    """Return the points that no other beats in one coordinate without losing in the other."""
    known = [(t, c, i) for i, (t, c) in enumerate(points) if t is not None and c is not None]
    return {
        i
        for t, c, i in known
        if not any(s <= t and d <= c and (s < t or d < c) for s, d, _ in known)
    }


def hours_row(log: RunLog) -> dict[str, Any] | None:
    """Return a run's hours by purpose; all but `queue` and `hold` sum to `allocated`."""
    breakdown = time_breakdown(log)
    if breakdown is None or not breakdown.seconds:
        return None
    hours = {name: seconds / 3600 for name, seconds in breakdown.seconds.items()}
    hold = hours.pop("between")
    allocated = breakdown.allocated_s / 3600
    return {
        "run": log.name,
        "allocated_h": allocated,
        "useful": hours["train"] / allocated if allocated else None,
        **{f"{name}_h": value for name, value in hours.items() if value},
        **({"hold_h": hold} if hold else {}),
    }
