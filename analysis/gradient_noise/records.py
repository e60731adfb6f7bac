"""Parse and check the records in which a run measured its gradient noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.stats.intervals import Floats
from analysis.stats.noise_scale import GramSums
from runs.records import Record

PARTS = ("products", "pairs", "squares", "counts")
# Scopes: all parameters at every training step; of bins of t, the adaLN layers at every step, the
# whole model at checkpoints, and the adaLN layers there for the same images.
STEPS, ADALN, WHOLE, SAME = "steps", "adaln", "whole", "adaln_same_images"
_MAX_BINS = 10_000


@dataclass(frozen=True, kw_only=True)
class NoiseRecord:
    """One measurement: by scope the sums of every bin of t, then of all t.

    `weights` is the share of the density of t in each bin; `count` and `batch` are K and b.
    """

    step: int
    count: int
    batch: int
    weights: Floats
    sums: Mapping[str, tuple[GramSums, ...]]
    seconds: float | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """K, b and the number of bins: records of one shape are averaged."""
        return self.count, self.batch, len(self.weights)


def parse_records(records: Sequence[Record]) -> tuple[dict[str, list[NoiseRecord]], int]:
    """Return the measurements of a run by field and in order of steps; how many are malformed."""
    found: dict[str, list[NoiseRecord]] = {name: [] for name in _PARSERS}
    malformed = 0
    for record in sorted(records, key=lambda record: int(record.get("step", 0))):
        for name in _PARSERS.keys() & record.keys():
            try:
                found[name].append(_PARSERS[name](int(record["step"]), record[name]))
            except (AttributeError, KeyError, TypeError, ValueError):
                malformed += 1
    return found, malformed


def _parse_step(step: int, fields: Mapping[str, Any]) -> NoiseRecord:
    """Parse `gns`: norms over some training steps, and the Gram sums of every bin."""
    count, batch, steps = _sizes(fields, "k", "b", "steps")
    norms = _norms([fields["small"]], [fields["big"]], count=count, batch=batch, steps=steps)
    sums: dict[str, tuple[GramSums, ...]] = {STEPS: (norms,)}
    weights = np.zeros(0)
    if bins := fields.get("bins"):
        weights, all_t = _numbers(bins["weights"]), fields["adaln"]
        total = all_t["products"], all_t["pairs"], 0.0, all_t["pairs"]
        columns = [[*bins[name], last] for name, last in zip(PARTS, total, strict=True)]
        sums[ADALN] = tuple(_grams(*([one] for one in row)) for row in _rows(columns, weights))
    return NoiseRecord(step=step, count=count, batch=batch, weights=weights, sums=sums)


def _parse_sample(_: int, fields: Mapping[str, Any]) -> NoiseRecord:
    """Parse `gns_sample`: one sample at a checkpoint, of one bin or of all t.

    The bins after its own are left out; `padded` adds them.
    """
    count, batch = _sizes(fields, "k", "b")
    adaln, number = fields.get("adaln"), fields.get("bin")
    sums = {WHOLE: (_norms([fields["small"]], [fields["big"]], count=count, batch=batch),)}
    if adaln:
        sums[SAME] = (_grams(*([adaln[part]] for part in PARTS)),)
    weights = np.zeros(0)
    if number is not None:
        weights = np.zeros(_count(number, least=0, most=_MAX_BINS) + 1)
        weights[-1] = _number(fields["weight"])
    return NoiseRecord(
        step=_count(fields["checkpoint"], least=0),
        count=count,
        batch=batch,
        weights=weights,
        sums=sums,
        seconds=_number(fields["seconds"]),
    )


_PARSERS: dict[str, Callable[[int, Mapping[str, Any]], NoiseRecord]] = {
    "gns": _parse_step,
    "gns_sample": _parse_sample,
}


def padded(sample: NoiseRecord, bins: int) -> NoiseRecord:
    """Return the record of a sample with `bins` bins, of which all but its own are empty."""
    place = len(sample.weights) - 1 if len(sample.weights) else bins
    sums = {
        scope: tuple(only if k == place else only.part(slice(0)) for k in range(bins + 1))
        for scope, (only,) in sample.sums.items()
    }
    weights = np.pad(sample.weights, (0, bins - len(sample.weights)))
    return replace(sample, sums=sums, weights=weights)


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


def _norms(small: Any, big: Any, *, count: int, batch: int, steps: int = 1) -> GramSums:
    if len(small) != len(big):
        raise ValueError("not as many small as big")
    weight = np.full(len(small), float(steps))
    return gram_sums_from_norms(
        _numbers(small), _numbers(big), count=count, batch=batch, weight=weight
    )


def _grams(*parts: Any) -> GramSums:
    return GramSums(columns=np.stack([_numbers(part) for part in parts], axis=1))


def _rows(columns: list[list[Any]], weights: Floats) -> list[tuple[Any, ...]]:
    """Return the rows of columns: one for each bin, then one for all t."""
    if any(len(column) != len(weights) + 1 for column in columns):
        raise ValueError("not as many weights as bins")
    return list(zip(*columns, strict=True))


def _sizes(fields: Mapping[str, Any], *names: str) -> list[int]:
    """Return counts: K, which is 2 or more, then others."""
    return [_count(fields[name], least=1 + (name == "k")) for name in names]


def _count(value: Any, *, least: int, most: int = 2**53) -> int:
    if type(value) is not int or not least <= value < most:
        raise ValueError(f"{value!r} is not a count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e300:
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _numbers(values: Any) -> Floats:
    return np.array([_number(value) for value in values], dtype=np.float64)
