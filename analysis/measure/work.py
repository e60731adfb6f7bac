"""Tell whether the steps of two runs hold the same work: images, tokens, or an unknown number.

A ratio of steps per second is one of speeds only if the steps of both runs are the same work.
"""

import math
import re
from collections.abc import Sequence

import numpy as np

from analysis.foreign_keys import kind_of
from analysis.measure.clocks import available_clocks, works_differ
from analysis.measure.differences import BOTH, Difference, differences
from analysis.measure.rate import MeasuredRate
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog

_WHOLE = re.compile("global|total|effective", re.IGNORECASE)
# Epochs whose lengths differ by more are of another batch, or of other data.
OTHER_LENGTH = 1.2


def work(base: MeasuredRate, arm: MeasuredRate) -> tuple[str, float]:
    """Return what speed is counted in, and the log of how much more of it a unit of `arm` holds."""
    if base.images_per_unit and arm.images_per_unit:
        return "image", math.log(arm.images_per_unit / base.images_per_unit)
    a, b = _tokens_of(base), _tokens_of(arm)
    if a and b:
        return "token", math.log(b / a)
    return base.unit, 0.0


def _tokens_of(run: MeasuredRate) -> float | None:
    """Return the tokens of a step of a log that counts them, else None."""
    if run.unit != "step":
        return None
    tokens = run.log.column("tokens")
    known = ~np.isnan(tokens)
    rises = np.diff(run.log.step[known])
    each = np.diff(tokens[known])[rises > 0]
    if not len(each) or (each <= 0).any():
        return None
    return float(each.sum() / rises[rises > 0].sum())


def why_other_steps(a: RunLog, b: RunLog) -> str | None:
    """Return why the steps of two runs may be of other numbers of images, or None."""
    parts = _parts(a, b)
    if _have_one_batch(a, b, parts):
        return None
    batches = (item for item in parts if item.kind == "batch")
    if (batch := next(batches, None)) is not None:
        return f"steps of another batch ({batch})"
    if told := _other_devices(a, b, parts):
        return f"steps that may take more images on more devices ({told})"
    shared = [clock for clock in available_clocks(a) if clock in available_clocks(b)]
    if shared and works_differ([a, b], shared[0]):
        return "steps of other work by the throughput that both print"
    one, other = _steps_per_epoch(a), _steps_per_epoch(b)
    if one and other and max(one, other) > OTHER_LENGTH * min(one, other):
        return f"steps of which {one:.4g} and {other:.4g} make an epoch"
    return None


def _parts(a: RunLog, b: RunLog) -> list[Difference]:
    """Return the differences of a batch or of devices: of configs, and of columns that stay."""
    found = differences(a, b)
    for name in sorted(a.values.keys() & b.values.keys()):
        each = [np.unique(log.values[name][np.isfinite(log.values[name])]) for log in (a, b)]
        if {len(values) for values in each} == {1} and each[0] != each[1]:
            old, new = (f"{values[0]:g}" for values in each)
            kind = kind_of(name)
            found.append(
                Difference(name=name, a=old, b=new, source="config", affects=BOTH, kind=kind)
            )
    return [item for item in found if item.kind in ("batch", "devices")]


def _have_one_batch(a: RunLog, b: RunLog, parts: Sequence[Difference]) -> bool:
    """Whether a batch of all devices is the same, by its own key or by the product of `parts`."""
    if not parts:
        return False
    whole = (
        name
        for name, value in (a.config or {}).items()
        if kind_of(name) == "batch" and _WHOLE.search(name) and value == (b.config or {}).get(name)
        if value is not None
    )
    if any(whole):
        return True
    pairs = [(str(item.a), str(item.b)) for item in parts]
    if not all(one.isdecimal() and int(one) for pair in pairs for one in pair):
        return False
    return math.prod(int(one) for one, _ in pairs) == math.prod(int(other) for _, other in pairs)


def _other_devices(a: RunLog, b: RunLog, parts: Sequence[Difference]) -> str | None:
    """Return in which number of devices two runs differ, None if in none that is known."""
    devices = (str(item) for item in parts if item.kind == "devices")
    counts = ranks(a.facts), ranks(b.facts)
    is_known = None not in counts and counts[0] != counts[1]
    return next(devices, f"ranks: {counts[0]} -> {counts[1]}" if is_known else None)


def why_images_doubtful(a: RunLog, b: RunLog) -> str | None:
    """Return why the images that two runs of other programs count may be too few, or None.

    A script that counts what it loads counts the same on any number of devices; a batch that was
    set for both may not be that of their configs.
    """
    if "ditbench" in (a.format, b.format) and not all(map(_is_of_script, (a, b))):
        return None
    parts = _parts(a, b)
    if _have_one_batch(a, b, parts):
        return None
    batches = (str(item) for item in parts if item.kind == "batch")
    told = _other_devices(a, b, parts)
    each = [float(log.last("images") or 0) / max(int(log.step[-1]), 1) for log in (a, b)]
    if abs(each[0] - each[1]) > 0.01 * max(each):
        return None
    if batch := next(batches, None):
        return f"as many images a step, though the batch differs ({batch})"
    if not told or "global_batch_size" in a.facts:
        return None
    return f"as many images a step on more devices ({told}) may be those of one process"


def _is_of_script(log: RunLog) -> bool:
    return (log.config or {}).get("kind") == "command"


def _steps_per_epoch(log: RunLog) -> float | None:
    """Return the steps from the first rise of the epoch to its last one, per epoch between them."""
    known = np.flatnonzero(~np.isnan(log.column("epoch")))
    step, epoch = log.step[known], log.column("epoch")[known]
    rises = np.flatnonzero(np.diff(epoch) > 0) + 1
    if log.axis != "step" or len(rises) < 2 or epoch[rises[-1]] <= epoch[rises[0]]:
        return None
    return float((step[rises[-1]] - step[rises[0]]) / (epoch[rises[-1]] - epoch[rises[0]]))
