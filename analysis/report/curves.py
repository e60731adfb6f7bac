"""Curves of runs for a page: thinned, over every axis that a log has, with intervals."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from analysis.measure.arms import Arm
from analysis.measure.loss_curve import AXES, axis_values, loss_curve
from analysis.measure.rate import measure_rate
from analysis.read.run_log import Ints, RunLog, kept_with_log
from analysis.stats.intervals import Floats, mean_band
from analysis.stats.replicates import FEWEST
from configs.errors import Unreadable
from runs.records import is_number

MOST_POINTS, ALL_POINTS, MOST_BAND_POINTS = 2000, 100_000, 400
# A smaller share of an axis is a difference of rounding.
SAME = 1e-9
# Fields of records that are an axis, a clock or a place, but no result.
_PLACES = ("step", "images", "time", "attempt", "line", "batch", "bars")
_CLOCKED = ("_s", "_j", "_low", "_high", "_95", "_samples", "drawn_images")
Curve = dict[str, Any]


def thinned(y: Floats, most: int) -> Ints:
    """Return the rows of at most `most` points of a curve [n].

    They are the least and the largest value of equal stretches, and both ends, so no spike is lost.
    """
    if len(y) <= most:
        return np.arange(len(y))
    parts = np.array_split(np.arange(1, len(y) - 1), (most - 2) // 2)
    ends = [int(part[at(y[part])]) for part in parts for at in (np.argmin, np.argmax)]
    return np.unique([0, *ends, len(y) - 1])


@kept_with_log
def curves(log: RunLog, *, most: int) -> Mapping[str, Curve]:
    """Return the curves of a run by name: its loss, other records, its rate and evaluations."""
    steps, rows = np.unique(log.step, return_index=True)
    names = ["loss", *(name for name in log.values if name != "loss")]
    found = {
        name: _curve(log, steps, log.column(name)[rows], most=most)
        for name in names
        if _is_result(name)
    }
    timed = measure_rate(log, clock=None).intervals
    if timed.unit == "step" and len(timed.seconds):
        name = f"steps per second ({timed.clock} clock)"
        found[name] = _curve(log, log.step[timed.row], 1 / timed.seconds, most=most)
    for name in sorted({name for record in log.evaluations for name in record} - found.keys()):
        known = {int(one["step"]): one for one in log.evaluations if is_number(one.get(name))}
        if _is_result(name) and known:
            step = np.array(sorted(known))
            y, half = (np.array([known[at].get(field, np.nan) for at in step.tolist()], float)
                       for field in (name, f"{name}_95"))  # fmt: skip
            found[name] = _curve(log, step, y, most=most, band=np.stack([y - half, y + half]))
    return {name: curve for name, curve in found.items() if curve}


def _is_result(name: str) -> bool:
    return name not in _PLACES and not name.endswith(_CLOCKED)


def mean_curve(arm: Arm, *, most: int) -> Curve:
    """Return the geometric mean loss over the seeds of an arm, with its 95 % interval by step.

    Repeats of one seed have the same losses and count once. Fewer than three `seeds` with a
    positive loss give nothing.
    """
    by_seed = {}
    for run in arm.runs:
        with suppress(Unreadable):
            by_seed[(run.log.config or {}).get("seed")] = loss_curve(run.log, by="step")
    parts = list(by_seed.values())
    if len(parts) < FEWEST:
        return {}
    low, high = max(part.x[0] for part in parts), min(part.x[-1] for part in parts)
    step = parts[0].x[(parts[0].x >= low) & (parts[0].x <= high)]
    losses = np.stack([np.interp(step, part.x, part.loss) for part in parts])
    if not len(step) or not (losses > 0).all():
        return {}
    rows = thinned(losses.mean(axis=0), min(most, MOST_BAND_POINTS))
    band = np.exp(mean_band(np.log(losses[:, rows])))
    axes = ("step", "images")
    mean = _curve(parts[0].log, step[rows], band[1], most=most, band=band[[0, 2]], axes=axes)
    return mean and mean | {"seeds": len(parts)}


def _curve(
    log: RunLog, step: Floats | Ints, y: Floats, *, most: int, band: Floats | None = None,
    axes: Sequence[str] = tuple(AXES),
) -> Curve:  # fmt: skip
    """Return the finite values [n] at `step` [n], with the `band` [2, n], over axes that rise.

    An axis in proportion to an earlier one is stored as its name and the factor.
    """
    known = np.flatnonzero(np.isfinite(y))
    rows = known[thinned(y[known], most)]
    if not len(rows):
        return {}
    place = np.minimum(np.searchsorted(log.step, step[rows]), max(len(log) - 1, 0))
    is_there = len(log) > 0 and bool((log.step[place] == step[rows]).all())
    found = {"step": step[rows].astype(np.float64)}
    for name in axes if is_there else ():
        values = axis_values(log, name)[place]
        if np.isfinite(values).all() and (np.diff(values) > 0).all():
            found[name] = values
    curve: Curve = {"y": _plain(y[rows]), "x": {name: _axis(name, found) for name in found}}
    if band is not None and np.isfinite(band[:, rows]).all():
        curve |= {"low": _plain(band[0, rows]), "high": _plain(band[1, rows])}
    return curve


def _axis(name: str, found: Mapping[str, Floats]) -> list[Any]:
    values = found[name]
    for other in list(found)[: list(found).index(name)]:
        factor = values[-1] / found[other][-1] if found[other][-1] else np.nan
        if np.abs(values - factor * found[other]).max() <= SAME * abs(values[-1]):
            return [other, float(factor)]
    return _plain(values)


def _plain(values: Floats) -> list[float | int]:
    """Return numbers of six digits, and whole ones exactly."""
    return [int(v) if v == int(v) else float(f"{v:.6g}") for v in values.tolist()]
