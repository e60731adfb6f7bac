"""Curves of runs for a page: thinned, over every axis that a log has, with intervals."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.special import stdtrit

from analysis.gpus.energy import energy_at
from analysis.measure.clocks import choose_clocks, intervals
from analysis.measure.loss import AXES, FEWEST_SEEDS, axis_values, loss_curve
from analysis.measure.speed import Arm
from analysis.read.run_log import Ints, RunLog, kept_with_log
from analysis.report.html import text
from analysis.stats.intervals import Floats
from configs.errors import Unreadable
from configs.table import formatted
from runs.records import is_number

PLOT_AXES = {**AXES, "energy_kwh": "energy of the GPUs in kWh"}
MOST_POINTS, ALL_POINTS = 2000, 100_000
# A smaller share of an axis is a difference of rounding.
SAME = 1e-9
STATIC_POINTS, STATIC_CURVES = 240, 10
# Fields of records that are an axis, a clock or a place, but no result.
_PLACES = ("step", "images", "time", "attempt", "line", "batch", "bars")
_CLOCKED = ("_s", "_j", "_low", "_high", "_95", "_samples", "drawn_images")
COLOURS = (
    "#1f77b4", "#e6730a", "#2ca02c", "#d62728", "#9467bd",
    "#8c564b", "#d65fb0", "#7f7f7f", "#a5a520", "#12a5b8",
)  # fmt: skip
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
    clock = choose_clocks([log])[0]
    timed = intervals(log, clock=clock)
    if timed.unit == "step" and len(timed.seconds):
        name = f"steps per second ({clock} clock)"
        found[name] = _curve(log, log.step[timed.row], 1 / timed.seconds, most=most)
    for name in sorted({name for record in log.evaluations for name in record} - found.keys()):
        known = {int(one["step"]): one for one in log.evaluations if is_number(one.get(name))}
        if _is_result(name) and known:
            step = np.array(sorted(known))
            y, half = (np.array([known[at].get(field, np.nan) for at in step.tolist()], float)
                       for field in (name, f"{name}_95"))  # fmt: skip
            found[name] = _curve(log, step, y, most=most, half=half)
    return {name: curve for name, curve in found.items() if curve}


def _is_result(name: str) -> bool:
    return name not in _PLACES and not name.endswith(_CLOCKED)


def mean_curve(arm: Arm, *, most: int) -> Curve:
    """Return the mean loss over the seeds of an arm, with Student's 95 % interval at each step.

    Repeats of one seed have the same losses and count once. Fewer than three `seeds` with a loss
    give nothing.
    """
    by_seed = {}
    for run in arm.runs:
        with suppress(Unreadable):
            by_seed[(run.log.config or {}).get("seed")] = loss_curve(run.log, by="step")
    parts = list(by_seed.values())
    if len(parts) < FEWEST_SEEDS:
        return {}
    low, high = max(part.x[0] for part in parts), min(part.x[-1] for part in parts)
    step = parts[0].x[(parts[0].x >= low) & (parts[0].x <= high)]
    losses = np.stack([np.interp(step, part.x, part.loss) for part in parts])
    n, axes = len(parts), ("step", "images")
    half = stdtrit(n - 1, 0.975) * losses.std(axis=0, ddof=1) / np.sqrt(n)
    mean = _curve(parts[0].log, step, losses.mean(axis=0), most=most, half=half, axes=axes)
    return mean and mean | {"seeds": n}


def _curve(
    log: RunLog, step: Floats | Ints, y: Floats, *, most: int, half: Floats | None = None,
    axes: Sequence[str] = tuple(PLOT_AXES),
) -> Curve:  # fmt: skip
    """Return the finite values [n] at `step` [n], with the band y -+ half, over axes that rise.

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
        values = _energy(log)[place] if name == "energy_kwh" else axis_values(log, name)[place]
        if np.isfinite(values).all() and (np.diff(values) > 0).all():
            found[name] = values
    curve: Curve = {"y": _plain(y[rows]), "x": {name: _axis(name, found) for name in found}}
    if half is not None and np.isfinite(half[rows]).all():
        curve |= {"low": _plain((y - half)[rows]), "high": _plain((y + half)[rows])}
    return curve


@kept_with_log
def _energy(log: RunLog) -> Floats:
    return energy_at(log, log.column("time"))


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


def static_plot(drawn: Sequence[Mapping[str, Any]]) -> str:
    """Return the first curves of `drawn` as SVG, for a page without a script and for paper."""
    label = next((name for run in drawn for name in run["curves"]), "")
    found = [(run["name"], run["curves"][label]) for run in drawn if label in run["curves"]]
    parts, points = [], []
    for _, curve in found[:STATIC_CURVES]:
        rows = thinned(np.array(curve["y"], float), STATIC_POINTS)
        points.append(np.array([curve["x"]["step"], curve["y"]], float)[:, rows])
    low, high = (end(np.hstack(points), axis=1) for end in (np.min, np.max))
    span = np.where(high > low, high - low, 1.0)
    for number, ((name, _), xy) in enumerate(zip(found, points, strict=False)):
        x, y = np.array([[62], [238]]) + np.array([[690], [-212]]) * ((xy.T - low) / span).T
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        parts.append(f'<polyline points="{line}" stroke="{COLOURS[number]}" stroke-width="1.5">'
                     f"<title>{text(name)}</title></polyline>")  # fmt: skip
    ticks = [(62, 254, low[0]), (720, 254, high[0]), (8, 240, low[1]), (8, 32, high[1])]
    labels = [(x, y, formatted(float(value))) for x, y, value in ticks]
    for x, y, shown in [*labels, (8, 14, label), (380, 272, "step")]:
        parts.append(f'<text x="{x}" y="{y}" fill="currentColor">{text(shown)}</text>')
    for number, (name, _) in enumerate(found[:STATIC_CURVES]):
        x, y = 62 + 350 * (number % 2), 292 + 15 * (number // 2)
        parts.append(f'<text x="{x}" y="{y}" fill="{COLOURS[number]}">&#8212; {text(name)}</text>')
    return (
        f'<svg class="plain" viewBox="0 0 760 {y + 8}" font-size="11" fill="none" role="img"'
        f' aria-label="{text(label)} over steps"><path d="M62 26V238H752" stroke="currentColor"/>'
        f"{''.join(parts)}</svg>"
    )
