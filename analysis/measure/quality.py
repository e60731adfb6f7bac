"""Frechet distances of arms of runs, with intervals over redraws and over seeds of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measure.speed import group_alike, is_repeat
from analysis.read.run_log import RunLog
from analysis.stats import intervals
from analysis.stats.intervals import Floats, blocks_mean, estimate_fields

# The margin of equivalent distances.
MARGIN = 0.02
GUIDANCE = "guidance was not tuned per arm: at other scales the order may be another"
# Facts in which comparable distances may differ: a run's own training data has its own path.
_FREE = ("guidance", "seed", "reference")


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The last evaluation of each seed of an arm."""

    name: str
    records: Sequence[Mapping[str, Any]]

    def values(self, name: str) -> Floats:
        """Return a field of every seed, `[seeds]` or `[seeds, blocks]`."""
        return np.array([record[name] for record in self.records], dtype=np.float64)

    @property
    def has_spread(self) -> bool:
        """Whether there are two or more seeds, with distances above 0."""
        return len(self.records) > 1 and bool((self.values("fid_inf") > 0).all())


def qualities(logs: Sequence[RunLog]) -> list[Quality]:
    """Return the arms that record distances without their bias."""
    arms = []
    for members in group_alike(logs, is_repeat):
        seeds = {(log.config or {}).get("seed"): log.evaluations for log in members}
        known = [[one for one in records if "fid_blocks" in one] for records in seeds.values()]
        last = [sorted(found, key=lambda one: one["step"])[-1] for found in known if found]
        if last:
            arms.append(Quality(name=members[0].name, records=last))
    return arms


def quality_row(base: Quality, arm: Quality, *, margin: float) -> dict[str, Any]:
    """Return one row: `fid_inf` with its interval over redraws of the same trainings, and means.

    `over_seeds` is the geometric mean of `fid_inf` with its interval over trainings, and `ratio`
    that of two arms.
    """
    first = arm.records[0]
    row: dict[str, Any] = {"run": arm.name, "verdict": None, "seeds": len(arm.records)}
    row |= estimate_fields("fid_inf", blocks_mean(arm.values("fid_blocks")))
    over_seeds = intervals.repeats_mean(arm.values("fid_inf")) if arm.has_spread else None
    row |= estimate_fields("over_seeds", over_seeds)
    for name in ("kid", "fid"):
        row[name] = float(arm.values(name).mean()) if name in first else None
    row |= {"images": first["images"], "samples": first["fid_samples"]}
    row |= {name: first["fid_facts"].get(name) for name in ("guidance", "features", "reference")}
    return row if arm is base else row | _compared(base, arm, margin=margin)


def _compared(base: Quality, arm: Quality, *, margin: float) -> dict[str, Any]:
    if unlike := _unlike([*base.records, *arm.records]):
        return {"verdict": f"not compared: other {', '.join(unlike)}"}
    if not (base.has_spread and arm.has_spread):
        return {"verdict": "inconclusive: one seed, or a FID at infinity that is not above 0"}
    ratio = intervals.repeats_ratio(arm.values("fid_inf"), base.values("fid_inf"))
    low, high = ratio.low or 0.0, ratio.high or np.inf
    word = "better" if high < 1 else "worse" if low > 1 else "inconclusive"
    word = "equivalent" if low >= 1 - margin and high <= 1 + margin else word
    logs = [np.log(each.values("fid_inf")) for each in (base, arm)]
    needed = intervals.seeds_needed(logs, ratio=1 + margin)
    return estimate_fields("ratio", ratio) | {"seeds_needed": needed, "verdict": word}


def _unlike(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the facts that differ, numbers by more than rounding errors."""
    facts = [
        {name: f"{fact:.4g}" if isinstance(fact, float) else fact for name, fact in facts.items()}
        for facts in (record["fid_facts"] for record in records)
    ]
    names = dict.fromkeys(name for one in facts for name in one if name not in _FREE)
    return [name for name in names if any(one.get(name) != facts[0].get(name) for one in facts)]
