"""Parse the records in which a run measured its gradient noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.stats.intervals import Floats
from analysis.stats.noise_scale import GramSums
from runs.records import Record

PARTS = ("products", "pairs", "squares", "counts")
# Scopes: all parameters at every training step; of bins of t, the adaLN layers at every step, the
# whole model at checkpoints, and the adaLN layers there for the same images.
STEPS, ADALN, WHOLE, SAME = "steps", "adaln", "whole", "adaln_same_images"


@dataclass(frozen=True, kw_only=True)
class NoiseRecord:
    """One measurement: by scope the `PARTS` of its bins of t, then of all t [bins + 1, 4].

    A record of training has every bin, one of a checkpoint has one bin or all t: the last of its
    rows, and `bin` is its number. `weights` is the share of the density of t in each bin; `count`
    and `batch` are K and b.
    """

    step: int
    count: int
    batch: int
    weights: Floats
    sums: Mapping[str, Floats]
    bin: int | None = None
    seconds: float = 0.0


def parse_records(records: Sequence[Record]) -> tuple[dict[str, list[NoiseRecord]], int]:
    """Return the measurements of a run by field and in order of steps; how many are malformed."""
    found: dict[str, list[NoiseRecord]] = {name: [] for name in _PARSERS}
    malformed = 0
    for record in sorted(records, key=lambda record: int(record.get("step", 0))):
        for name in _PARSERS.keys() & record.keys():
            try:
                found[name].append(_checked(_PARSERS[name](int(record["step"]), record[name])))
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
                malformed += 1
    return found, malformed


def _checked(record: NoiseRecord) -> NoiseRecord:
    arrays = [record.weights, *record.sums.values()]
    if record.count < 2 or record.batch < 1 or not all(np.isfinite(one).all() for one in arrays):
        raise ValueError("no numbers of two microbatches or more")
    return record


def _parse_step(step: int, fields: Mapping[str, Any]) -> NoiseRecord:
    """Parse `gns`: norms over some training steps, and the Gram sums of every bin."""
    count, batch = int(fields["k"]), int(fields["b"])
    sums, weights = {STEPS: _norms(fields, count, batch, steps=int(fields["steps"]))}, np.zeros(0)
    if bins := fields.get("bins"):
        weights, all_t = np.array(bins["weights"], dtype=np.float64), fields["adaln"]
        own = np.array([bins[name] for name in PARTS], dtype=np.float64).T
        if len(own) != len(weights):
            raise ValueError("not as many weights as bins")
        total = [all_t["products"], all_t["pairs"], 0.0, all_t["pairs"]]
        sums[ADALN] = np.vstack([own, np.array([total], dtype=np.float64)])
    return NoiseRecord(step=step, count=count, batch=batch, weights=weights, sums=sums)


def _parse_sample(_: int, fields: Mapping[str, Any]) -> NoiseRecord:
    """Parse `gns_sample`: one sample at a checkpoint, of one bin or of all t."""
    count, batch = int(fields["k"]), int(fields["b"])
    sums, number = {WHOLE: _norms(fields, count, batch)}, fields.get("bin")
    if adaln := fields.get("adaln"):
        sums[SAME] = np.array([[adaln[part] for part in PARTS]], dtype=np.float64)
    return NoiseRecord(
        step=int(fields["checkpoint"]),
        count=count,
        batch=batch,
        weights=np.array([] if number is None else [fields["weight"]], dtype=np.float64),
        sums=sums,
        bin=None if number is None else int(number),
        seconds=float(fields["seconds"]),
    )


_PARSERS: dict[str, Callable[[int, Mapping[str, Any]], NoiseRecord]] = {
    "gns": _parse_step,
    "gns_sample": _parse_sample,
}


def _norms(fields: Mapping[str, Any], count: int, batch: int, *, steps: int = 1) -> Floats:
    small, big = (np.array([fields[name]], dtype=np.float64) for name in ("small", "big"))
    weight = np.array([float(steps)])
    return gram_sums_from_norms(small, big, count=count, batch=batch, weight=weight).columns


def gram_sums_from_norms(
    small: Floats, big: Floats, *, count: int, batch: int, weight: Floats | None = None
) -> GramSums:
    """Return samples from the mean |g_k|^2 and the |g|^2 of `count` microbatches, each [n].

    A sample stands for `weight` [n] steps, by default one.
    """
    weight = np.ones(len(small)) if weight is None else weight
    # The unbiased estimate of |G|^2 (McCandlish et al. 2018, A.1).
    g2 = (count * big - small) / (count - 1)
    return GramSums.of(
        products=g2 * weight, pairs=weight, squares=small * weight, counts=weight, batch=batch
    )
