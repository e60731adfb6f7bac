"""Parse the records in which a run measured its gradient noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.stats.intervals import Floats
from analysis.stats.noise_scale import GramSums
from runs.records import Record


@dataclass(frozen=True, kw_only=True)
class NoiseRecord:
    """One measurement by `count` microbatches of `batch` images: the `sums` [4] of `GramSums`.

    `bin` is the number of the bin of t that the images are of, None for all t.
    """

    step: int
    count: int
    batch: int
    sums: Floats
    bin: int | None = None
    seconds: float = 0.0


def parse_records(records: Sequence[Record]) -> tuple[dict[str, list[NoiseRecord]], int]:
    """Return the measurements of a run by field and in order of steps; how many are malformed."""
    found: dict[str, list[NoiseRecord]] = {name: [] for name in _PARSERS}
    malformed = 0
    for record in sorted(records, key=lambda record: int(record.get("step", 0))):
        for name in _PARSERS.keys() & record.keys():
            try:
                found[name].append(_PARSERS[name](int(record["step"]), record[name]))
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
                malformed += 1
    return found, malformed


def _parse_step(step: int, fields: Mapping[str, Any]) -> NoiseRecord:
    """Parse `gns`: norms over some training steps."""
    count, batch = int(fields["k"]), int(fields["b"])
    sums = _norms(fields, count, batch, steps=int(fields["steps"]))
    return NoiseRecord(step=step, count=count, batch=batch, sums=sums)


def _parse_sample(_: int, fields: Mapping[str, Any]) -> NoiseRecord:
    """Parse `gns_sample`: one sample at a checkpoint, of one bin or of all t."""
    count, batch, number = int(fields["k"]), int(fields["b"]), fields.get("bin")
    return NoiseRecord(
        step=int(fields["checkpoint"]),
        count=count,
        batch=batch,
        sums=_norms(fields, count, batch),
        bin=None if number is None else int(number),
        seconds=float(fields["seconds"]),
    )


_PARSERS: dict[str, Callable[[int, Mapping[str, Any]], NoiseRecord]] = {
    "gns": _parse_step,
    "gns_sample": _parse_sample,
}


def _norms(fields: Mapping[str, Any], count: int, batch: int, *, steps: int = 1) -> Floats:
    if count < 2 or batch < 1:
        raise ValueError("no two microbatches")
    small, big = (np.array([fields[name]], dtype=np.float64) for name in ("small", "big"))
    weight = np.array([float(steps)])
    sums = gram_sums_from_norms(small, big, count=count, batch=batch, weight=weight).columns[0]
    if not np.isfinite(sums).all():
        raise ValueError("no numbers")
    return np.asarray(sums)


def gram_sums_from_norms(
    small: Floats, big: Floats, *, count: int, batch: int, weight: Floats | None = None
) -> GramSums:
    """Return samples from the mean |g_k|^2 and the |g|^2 of `count` microbatches, each [n].

    A sample stands for `weight` [n] steps, by default one.
    """
    weight = np.ones(len(small)) if weight is None else weight
    g2 = (count * big - small) / (count - 1)
    return GramSums.of(
        products=g2 * weight, pairs=weight, squares=small * weight, counts=weight, batch=batch
    )
