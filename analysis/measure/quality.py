"""Frechet distances of arms of runs, with intervals over redraws and over seeds of training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.differences import recipe
from analysis.measure.loss import Compared, loss_contrast, loss_scatter
from analysis.measure.loss_curve import at_common_guidance, axis_of
from analysis.observations import group_alike, seed_of, without_early_ends
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats, blocks_mean, estimate_fields
from analysis.stats.samples import one_sample
from analysis.verdict import against_first

FID = "fid_inf"
# The margin of equivalent distances.
MARGIN = 0.02
GUIDANCE = "guidance was not tuned per arm: at other scales the order may be another"
# The last evaluation of each seed of an arm.
Records = Sequence[Mapping[str, Any]]


def quality_rows(logs: Sequence[RunLog], *, margin: float) -> list[dict[str, Any]]:
    """Return a row per arm of runs that record distances without their bias, the first the base.

    `fid_inf` has an interval over redraws of the same trainings; `over_seeds` is its geometric mean
    with the interval over trainings, on which the verdict rests.
    """
    known = [log for log in logs if any("fid_blocks" in one for one in log.evaluations)]
    if not known:
        return []
    base, *others = arms = group_alike(at_common_guidance(known, FID), recipe)
    compared = Compared(of=FID, by=axis_of(known), margin=margin)
    scatter = loss_scatter(arms, compared)
    contrasts = [loss_contrast(base, arm, compared, scatter=scatter) for arm in others]
    names = [arm[0].name for arm in arms]
    verdicts = against_first(contrasts, compared.quantity, names=names)
    rows = [_row(name, _last(arm)) for name, arm in zip(names, arms, strict=True)]
    return [row | verdict for row, verdict in zip(rows, verdicts, strict=True)]


def _last(arm: Sequence[RunLog]) -> Records:
    """Return the evaluation of each seed of an arm at the last step that all of them have."""
    kept, *_ = without_early_ends(arm, arm)
    logs = {seed_of(log): log for log in at_common_guidance(kept, FID)}
    seeds = [
        {one["step"]: one for one in log.evaluations if "fid_blocks" in one}
        for log in logs.values()
    ]
    common = [step for step in seeds[0] if all(step in own for own in seeds)]
    return [own[max(common or own)] for own in seeds]


def _row(name: str, records: Records) -> dict[str, Any]:
    first, logs = records[0], _logs(records)
    row: dict[str, Any] = {"run": name, "seeds": len(records)}
    row |= {"step": first["step"], "images": first["images"]}
    row |= estimate_fields(FID, blocks_mean(_values(records, "fid_blocks")))
    row |= estimate_fields("over_seeds", one_sample(logs).ratio() if len(logs) > 1 else None)
    for field in ("kid", "fid"):
        row[field] = float(_values(records, field).mean()) if field in first else None
    row |= {"samples": first["fid_samples"]}
    facts = first["fid_facts"]
    return row | {fact: facts.get(fact) for fact in ("guidance", "features", "reference")}


def _values(records: Records, name: str) -> Floats:
    """Return a field of every seed, `[seeds]` or `[seeds, blocks]`."""
    return np.array([record[name] for record in records], dtype=np.float64)


def _logs(records: Records) -> Floats:
    """Return the logs of `fid_inf` of every seed, none if one is not above 0."""
    values = _values(records, FID)
    return np.log(values) if (values > 0).all() else np.empty(0)
