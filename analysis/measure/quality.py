"""Frechet distances of arms of runs, with intervals over redraws and over seeds of training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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


FID = Quantity(name="FID", better="lower", margin=MARGIN)
# The last evaluation of each seed of an arm.
Records = Sequence[Mapping[str, Any]]


def qualities(logs: Sequence[RunLog]) -> dict[str, Records]:
    """Return the arms by name that record distances without their bias."""
    found = {members[0].name: last_distances(members) for members in group_alike(logs, recipe)}
    return {name: records for name, records in found.items() if records}


def last_distances(arm: Sequence[RunLog]) -> Records:
    """Return the last evaluation of each seed of an arm that records distances."""
    seeds = {seed_of(log): log.evaluations for log in arm}
    known = [[one for one in records if "fid_blocks" in one] for records in seeds.values()]
    return [sorted(found, key=lambda one: one["step"])[-1] for found in known if found]


def quality_rows(arms: Mapping[str, Records], *, margin: float) -> list[dict[str, Any]]:
    """Return a row per arm, the first being the baseline.

    `fid_inf` has an interval over redraws of the same trainings; `over_seeds` is its geometric mean
    with the interval over trainings, on which the verdict rests.
    """
    quantity = replace(FID, margin=margin)
    base, *others = arms.values()
    contrasts = [quality_contrast(base, arm) for arm in others]
    verdicts = against_first(contrasts, quantity, names=list(arms))
    rows = [_row(name, records) for name, records in arms.items()]
    return [row | verdict for row, verdict in zip(rows, verdicts, strict=True)]


def _row(name: str, records: Records) -> dict[str, Any]:
    first, logs = records[0], _logs(records)
    row: dict[str, Any] = {"run": name, "seeds": len(records)}
    row |= estimate_fields("fid_inf", blocks_mean(_values(records, "fid_blocks")))
    row |= estimate_fields("over_seeds", one_sample(logs).ratio() if len(logs) > 1 else None)
    for field in ("kid", "fid"):
        row[field] = float(_values(records, field).mean()) if field in first else None
    row |= {"images": first["images"], "samples": first["fid_samples"]}
    facts = first["fid_facts"]
    return row | {fact: facts.get(fact) for fact in ("guidance", "features", "reference")}


def _values(records: Records, name: str) -> Floats:
    """Return a field of every seed, `[seeds]` or `[seeds, blocks]`."""
    return np.array([record[name] for record in records], dtype=np.float64)


def _logs(records: Records) -> Floats:
    """Return the logs of `fid_inf` of every seed, none if one is not above 0."""
    values = _values(records, "fid_inf")
    return np.log(values) if (values > 0).all() else np.empty(0)


def quality_contrast(base: Records, arm: Records) -> Contrast:
    """Return the contrast of the distances of two arms over their seeds."""
    if unlike := _unlike([*base, *arm]):
        return refused(f"other {', '.join(unlike)}")
    sides = [
        [Replicate(log=float(log), seed=seed) for seed, log in enumerate(_logs(records))]
        for records in (base, arm)
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
