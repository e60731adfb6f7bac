"""Frechet distances of arms of runs, with intervals over redraws and over seeds of training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.measure.differences import recipe
from analysis.observations import group_alike, seed_of
from analysis.read.run_log import RunLog
from analysis.stats.contrast import Contrast, Quantity, Replicate, contrast, refused
from analysis.stats.intervals import Floats, blocks_mean, estimate_fields
from analysis.stats.samples import one_sample
from analysis.verdict import against_first

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

    def logs(self) -> Floats:
        """Return the logs of `fid_inf` of every seed, none if one is not above 0."""
        values = self.values("fid_inf")
        return np.log(values) if (values > 0).all() else np.empty(0)


FID = Quantity(name="FID", better="lower", stretch="last evaluation", margin=MARGIN)


def qualities(logs: Sequence[RunLog]) -> list[Quality]:
    """Return the arms that record distances without their bias."""
    found = [quality_of(members) for members in group_alike(logs, recipe)]
    return [quality for quality in found if quality is not None]


def quality_of(arm: Sequence[RunLog]) -> Quality | None:
    """Return the last evaluation of each seed of an arm, None if none records a distance."""
    seeds = {seed_of(log): log.evaluations for log in arm}
    known = [[one for one in records if "fid_blocks" in one] for records in seeds.values()]
    last = [sorted(found, key=lambda one: one["step"])[-1] for found in known if found]
    return Quality(name=arm[0].name, records=last) if last else None


def quality_rows(arms: Sequence[Quality], *, margin: float) -> list[dict[str, Any]]:
    """Return a row per arm, the first being the baseline.

    `fid_inf` has an interval over redraws of the same trainings; `over_seeds` is its geometric mean
    with the interval over trainings, on which the verdict rests.
    """
    quantity = replace(FID, margin=margin)
    base, *others = arms
    contrasts = [quality_contrast(base, arm) for arm in others]
    verdicts = against_first(contrasts, quantity, names=[arm.name for arm in arms])
    return [_row(arm) | verdict for arm, verdict in zip(arms, verdicts, strict=True)]


def _row(arm: Quality) -> dict[str, Any]:
    first = arm.records[0]
    row: dict[str, Any] = {"run": arm.name, "seeds": len(arm.records)}
    row |= estimate_fields("fid_inf", blocks_mean(arm.values("fid_blocks")))
    logs = arm.logs()
    over_seeds = one_sample(logs).estimate().map(math.exp) if len(logs) > 1 else None
    row |= estimate_fields("over_seeds", over_seeds)
    for name in ("kid", "fid"):
        row[name] = float(arm.values(name).mean()) if name in first else None
    row |= {"images": first["images"], "samples": first["fid_samples"]}
    return row | {
        name: first["fid_facts"].get(name) for name in ("guidance", "features", "reference")
    }


def quality_contrast(base: Quality, arm: Quality) -> Contrast:
    """Return the contrast of the distances of two arms over their seeds."""
    if unlike := _unlike([*base.records, *arm.records]):
        return refused(f"other {', '.join(unlike)}")
    sides = [
        [Replicate(log=float(log), seed=n) for n, log in enumerate(q.logs())] for q in (base, arm)
    ]
    if not all(sides):
        return Contrast(mean=None, why="a FID at infinity is not above 0")
    return contrast(*sides)


def why_other(logs: Sequence[RunLog], of: str) -> str | None:
    """Return in which facts distances `of` samples were measured unlike, None if in none."""
    known = ([one for one in log.evaluations if of in one and "fid_facts" in one] for log in logs)
    unlike = _unlike([records[-1] for records in known if records])
    return f"other {', '.join(unlike)}" if unlike and "loss" not in of else None


def _unlike(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the facts that differ, numbers by more than rounding errors."""
    facts = [
        {name: f"{fact:.4g}" if isinstance(fact, float) else fact for name, fact in facts.items()}
        for facts in (record["fid_facts"] for record in records)
    ]
    names = dict.fromkeys(name for one in facts for name in one if name not in _FREE)
    return [name for name in names if any(one.get(name) != facts[0].get(name) for one in facts)]
