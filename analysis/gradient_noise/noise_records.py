"""One record each of what a run measured of its gradients' noise, checked number by number."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from analysis.stats.intervals import Floats
from analysis.stats.noise_scale import GramSums, sums_of_norms
from configs.run.records import Record

PARTS = ("products", "pairs", "squares", "counts")
_MOST_BINS = 10_000

Read = TypeVar("Read")


@dataclass(frozen=True, kw_only=True)
class StepNoise:
    """One training record: norms over `steps` steps, and sums of every bin [4, bins]."""

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
    """One measurement by bins, of the whole model and of the adaLN layers for the same images.

    The last of each is over all t.
    """

    step: int
    shape: tuple[int, int, int]
    weights: Floats
    whole: tuple[GramSums, ...]
    adaln: tuple[GramSums, ...]


@dataclass(frozen=True, kw_only=True)
class SampleNoise:
    """One sample of a checkpoint; `k` is its bin, -1 for all of t."""

    step: int
    k: int
    weight: float
    count: int
    seconds: float
    whole: GramSums
    adaln: GramSums | None


def sound(
    records: Sequence[Record], name: str, read: Callable[[int, Any], Read]
) -> tuple[list[Read], int]:
    """The records of a name that can be read, by step, and how many cannot."""
    found, odd = [], 0
    for record in sorted((r for r in records if name in r), key=lambda r: int(r["step"])):
        try:
            if not isinstance(record[name], dict):
                raise TypeError("not a mapping")
            found.append(read(int(record["step"]), record[name]))
        except (AttributeError, KeyError, TypeError, ValueError):
            odd += 1
    return found, odd


def step_noise(step: int, told: Mapping[str, Any]) -> StepNoise:
    """The `gns` of a training record; KeyError, TypeError or ValueError where it is none."""
    bins = told.get("bins") or {"weights": [], **{part: [] for part in PARTS}}
    adaln = told.get("adaln") or {"products": 0.0, "pairs": 0.0}
    sums = np.stack([_numbers(bins[part]) for part in PARTS])
    weights = _numbers(bins["weights"])
    if sums.shape[1] != len(weights):
        raise ValueError("not as many weights as bins")
    return StepNoise(
        step=step,
        count=_count(told["k"], least=2),
        batch=_count(told["b"], least=1),
        steps=float(_count(told["steps"], least=1)),
        small=_number(told["small"]),
        big=_number(told["big"]),
        weights=weights,
        bins=sums,
        adaln=_numbers([adaln["products"], adaln["pairs"]]),
    )


def whole_noise(step: int, told: Mapping[str, Any]) -> WholeNoise:
    """A `gns_whole`; KeyError, TypeError or ValueError where it is none."""
    count, batch = _count(told["k"], least=2), _count(told["b"], least=1)
    weights = _numbers(told["weights"])
    rows = {name: [*told[name], told["all"][name]] for name in ("small", "big", *PARTS)}
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


def sample_noise(_: int, told: Mapping[str, Any]) -> SampleNoise:
    """A `gns_sample`; KeyError, TypeError or ValueError where it is none."""
    count, batch = _count(told["k"], least=2), _count(told["b"], least=1)
    adaln = told.get("adaln")
    return SampleNoise(
        step=_count(told["checkpoint"], least=0),
        k=-1 if told.get("bin") is None else _count(told["bin"], least=0, most=_MOST_BINS),
        weight=_number(told["weight"]),
        count=count,
        seconds=_number(told["seconds"]),
        whole=_norm_sums([told["small"]], [told["big"]], count=count, batch=batch),
        adaln=_gram_sums(*([adaln[part]] for part in PARTS)) if adaln else None,
    )


def _norm_sums(small: Any, big: Any, *, count: int, batch: int) -> GramSums:
    if len(small) != len(big):
        raise ValueError("not as many small as big")
    return sums_of_norms(_numbers(small), _numbers(big), count=count, batch=batch)


def _gram_sums(*parts: Any) -> GramSums:
    columns = np.stack([_numbers(part) for part in parts])
    return GramSums(**dict(zip(PARTS, columns, strict=True)))


def _count(value: Any, *, least: int, most: int = 2**53) -> int:
    if type(value) is not int or not least <= value < most:
        raise ValueError(f"{value!r} is no count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e300:
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _numbers(values: Any) -> Floats:
    return np.array([_number(value) for value in values], dtype=np.float64)
