"""Parse and check the records in which a run measured its gradient noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from analysis.stats.intervals import Floats
from analysis.stats.noise_scale import GramSums
from configs.noise_scale import noise_of
from runs.records import Record

PARTS = ("products", "pairs", "squares", "counts")
_MAX_BINS = 10_000

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, kw_only=True)
class StepNoise:
    """One `gns` field: norms over `steps` training steps, and sums of every bin [4, bins]."""

    step: int
    count: int
    batch: int
    steps: float
    small: float
    big: float
    weights: Floats
    bins: Floats
    adaln: Floats


@dataclass(frozen=True, kw_only=True)
class WholeNoise:
    """One `gns_whole` field: bins, then all of t, of the whole model and adaLN, same images."""

    step: int
    shape: tuple[int, int, int]
    weights: Floats
    whole: tuple[GramSums, ...]
    adaln: tuple[GramSums, ...]


@dataclass(frozen=True, kw_only=True)
class SampleNoise:
    """One `gns_sample` field: a sample at a checkpoint; `bin` is -1 for all of t."""

    step: int
    bin: int
    weight: float
    count: int
    seconds: float
    whole: GramSums
    adaln: GramSums | None


def parse_records(
    records: Sequence[Record], name: str, parse: Callable[[int, Any], Parsed]
) -> tuple[list[Parsed], int]:
    """Parse the field `name` of all records, by step; also return how many are malformed."""
    found, malformed = [], 0
    for record in sorted((r for r in records if name in r), key=lambda r: int(r["step"])):
        try:
            if not isinstance(record[name], dict):
                raise TypeError("not a mapping")
            found.append(parse(int(record["step"]), record[name]))
        except (AttributeError, KeyError, TypeError, ValueError):
            malformed += 1
    return found, malformed


def parse_step(step: int, fields: Mapping[str, Any]) -> StepNoise:
    """Parse `gns`. Raise KeyError, TypeError or ValueError if it is malformed."""
    bins = fields.get("bins") or {"weights": [], **{part: [] for part in PARTS}}
    adaln = fields.get("adaln") or {"products": 0.0, "pairs": 0.0}
    sums = np.stack([_numbers(bins[part]) for part in PARTS])
    weights = _numbers(bins["weights"])
    if sums.shape[1] != len(weights):
        raise ValueError("not as many weights as bins")
    return StepNoise(
        step=step,
        count=_count(fields["k"], least=2),
        batch=_count(fields["b"], least=1),
        steps=float(_count(fields["steps"], least=1)),
        small=_number(fields["small"]),
        big=_number(fields["big"]),
        weights=weights,
        bins=sums,
        adaln=_numbers([adaln["products"], adaln["pairs"]]),
    )


def parse_whole(step: int, fields: Mapping[str, Any]) -> WholeNoise:
    """Parse `gns_whole`. Raise KeyError, TypeError or ValueError if it is malformed."""
    count, batch = _count(fields["k"], least=2), _count(fields["b"], least=1)
    weights = _numbers(fields["weights"])
    rows = {name: [*fields[name], fields["all"][name]] for name in ("small", "big", *PARTS)}
    if any(len(row) != len(weights) + 1 for row in rows.values()):
        raise ValueError("not as many weights as bins")
    return WholeNoise(
        step=step,
        shape=(count, batch, len(weights)),
        weights=weights,
        whole=tuple(
            _norm_sums(small, big, count=count, batch=batch)
            for small, big in zip(rows["small"], rows["big"], strict=True)
        ),
        adaln=tuple(
            _gram_sums(*parts) for parts in zip(*(rows[part] for part in PARTS), strict=True)
        ),
    )


def parse_sample(_: int, fields: Mapping[str, Any]) -> SampleNoise:
    """Parse `gns_sample`. Raise KeyError, TypeError or ValueError if it is malformed."""
    count, batch = _count(fields["k"], least=2), _count(fields["b"], least=1)
    adaln = fields.get("adaln")
    return SampleNoise(
        step=_count(fields["checkpoint"], least=0),
        bin=-1 if fields.get("bin") is None else _count(fields["bin"], least=0, most=_MAX_BINS),
        weight=_number(fields["weight"]),
        count=count,
        seconds=_number(fields["seconds"]),
        whole=_norm_sums([fields["small"]], [fields["big"]], count=count, batch=batch),
        adaln=_gram_sums(*([adaln[part]] for part in PARTS)) if adaln else None,
    )


def gram_sums_from_norms(
    small: Floats, big: Floats, *, count: int, batch: int, weight: Floats | None = None
) -> GramSums:
    """Return samples from the mean |g_k|^2 and the |g|^2 of `count` microbatches, each [n].

    A sample stands for `weight` [n] steps, by default one.
    """
    weight = np.ones(len(small)) if weight is None else weight
    g2 = noise_of(small, big, count=count, batch=batch).g2
    return GramSums.of(
        products=g2 * weight, pairs=weight, squares=small * weight, counts=weight, batch=batch
    )


def _norm_sums(small: Any, big: Any, *, count: int, batch: int) -> GramSums:
    if len(small) != len(big):
        raise ValueError("not as many small as big")
    return gram_sums_from_norms(_numbers(small), _numbers(big), count=count, batch=batch)


def _gram_sums(*parts: Any) -> GramSums:
    return GramSums(columns=np.stack([_numbers(part) for part in parts], axis=1))


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
