"""What runs recorded of their gradients' noise: while training, and over saved checkpoints."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from analysis.gns import Sums, joined, sums_of_norms
from analysis.noise import MIN_VALUES, Floats
from analysis.read import Unreadable
from configs.load import flatten
from configs.records import Record, read_records, valid
from configs.run import RunFolder
from configs.yaml12 import ConfigError

# Of the adaLN layers in every step; of the whole model; of the adaLN layers for the same images.
ADALN, WHOLE, SAME = "adaln", "whole", "adaln_same_images"
_PARTS = ("products", "pairs", "squares", "counts")

Read = TypeVar("Read")


@dataclass(frozen=True, kw_only=True)
class Binned:
    """The noise of every bin of t by itself; a bin without samples has none.

    `weights` is how much of the density of t each bin holds, `total` the samples of |G|^2 over
    all t, of the same parameters.
    """

    scope: str
    weights: Floats
    bins: tuple[Sums, ...]
    total: Sums


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of training that ends with `step`, or the checkpoint of that step.

    `count` is K, and `seconds` what the samples of a checkpoint took together.
    """

    step: int
    count: int
    seconds: float | None
    whole: Sums
    binned: tuple[Binned, ...]


@dataclass(frozen=True, kw_only=True)
class NoiseLog:
    """The stages of a run; `sampler` is how its times were drawn, `odd` how many records are none.

    Under `stratified` times depend on one another, and what another sampler would save is not
    told by them.
    """

    name: str
    sampler: str
    stages: tuple[Stage, ...]
    odd: int


def read_noise(run: RunFolder, *, stages: int) -> NoiseLog:
    """The noise that a run recorded, in at most so many stages of `MIN_VALUES` records or more.

    A run over checkpoints has a stage for each of them. `Unreadable` where it recorded none.
    """
    try:
        config = flatten(run.asked())
        records = valid(record for _, record in read_records(run.metrics_file))
    except (ConfigError, RecursionError, TypeError) as error:
        raise Unreadable(str(error)) from None
    samples, odd = _sound(records, "gns_sample", _sample)
    if samples:
        found = list(_checkpoints(samples))
    else:
        steps, bad = _sound(records, "gns", _step)
        wholes, worse = _sound(records, "gns_whole", _whole)
        found, odd = list(_windows(steps, wholes, stages)), odd + bad + worse
    if not found:
        raise Unreadable(
            f"{run.name}: recorded no noise of its gradients; train it with gns.enabled=true, or "
            "measure its checkpoints with jobs/gns.sbatch"
        )
    key = "objective.sampler" if not samples else "sampler"
    sampler = str(config.get(key) or "uniform")
    return NoiseLog(name=run.name, sampler=sampler, stages=tuple(found), odd=odd)


@dataclass(frozen=True, kw_only=True)
class _Step:
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
class _Whole:
    """One measurement by bins, of the whole model and of the adaLN layers for the same images.

    The last of each is over all t.
    """

    step: int
    shape: tuple[int, int, int]
    weights: Floats
    whole: tuple[Sums, ...]
    adaln: tuple[Sums, ...]


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """One sample of a checkpoint; `k` is its bin, -1 for all of t."""

    step: int
    k: int
    weight: float
    count: int
    seconds: float
    whole: Sums
    adaln: Sums | None


def _sound(
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


def _step(step: int, told: Mapping[str, Any]) -> _Step:
    bins = told.get("bins") or {"weights": [], **{part: [] for part in _PARTS}}
    adaln = told.get("adaln") or {"products": 0.0, "pairs": 0.0}
    sums = np.stack([_numbers(bins[part]) for part in _PARTS])
    weights = _numbers(bins["weights"])
    if sums.shape[1] != len(weights):
        raise ValueError("not as many weights as bins")
    return _Step(
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


def _whole(step: int, told: Mapping[str, Any]) -> _Whole:
    count, batch = _count(told["k"], least=2), _count(told["b"], least=1)
    weights = _numbers(told["weights"])
    rows = {name: [*told[name], told["all"][name]] for name in ("small", "big", *_PARTS)}
    if any(len(row) != len(weights) + 1 for row in rows.values()):
        raise ValueError("not as many weights as bins")
    return _Whole(
        step=step,
        shape=(count, batch, len(weights)),
        weights=weights,
        whole=tuple(
            _norm_sums(small, big, count=count, batch=batch)
            for small, big in zip(rows["small"], rows["big"], strict=True)
        ),
        adaln=tuple(
            _gram_sums(*parts) for parts in zip(*(rows[part] for part in _PARTS), strict=True)
        ),
    )


def _sample(_: int, told: Mapping[str, Any]) -> _Sample:
    count, batch = _count(told["k"], least=2), _count(told["b"], least=1)
    adaln = told.get("adaln")
    return _Sample(
        step=_count(told["checkpoint"], least=0),
        k=-1 if told.get("bin") is None else _count(told["bin"], least=0),
        weight=_number(told["weight"]),
        count=count,
        seconds=_number(told["seconds"]),
        whole=_norm_sums([told["small"]], [told["big"]], count=count, batch=batch),
        adaln=_gram_sums(*([adaln[part]] for part in _PARTS)) if adaln else None,
    )


def _norm_sums(small: Any, big: Any, *, count: int, batch: int) -> Sums:
    if len(small) != len(big):
        raise ValueError("not as many small as big")
    return sums_of_norms(_numbers(small), _numbers(big), count=count, batch=batch)


def _gram_sums(*parts: Any) -> Sums:
    columns = np.stack([_numbers(part) for part in parts])
    return Sums(**dict(zip(_PARTS, columns, strict=True)))


def _windows(steps: list[_Step], wholes: list[_Whole], stages: int) -> Iterator[Stage]:
    """Equal stretches of records, cut also where the microbatches change."""
    alike: list[list[_Step]] = []
    for one in steps:
        if not alike or _shape(alike[-1][0]) != _shape(one):
            alike.append([])
        alike[-1].append(one)
    begin = -1
    for group in alike:
        parts = max(1, min(stages, len(group) // MIN_VALUES))
        for rows in np.array_split(np.arange(len(group)), parts):
            part = [group[int(row)] for row in rows]
            last = part[-1].step
            seen = [one for one in wholes if begin < one.step <= last]
            yield _stage(part, seen)
            begin = last


def _shape(one: _Step) -> tuple[int, int, int]:
    return one.count, one.batch, len(one.weights)


def _stage(part: list[_Step], wholes: list[_Whole]) -> Stage:
    first, weight = part[0], np.array([one.steps for one in part])
    whole = sums_of_norms(
        np.array([one.small for one in part]),
        np.array([one.big for one in part]),
        count=first.count,
        batch=first.batch,
        weight=weight,
    )
    binned = [_adaln(part)] if len(first.weights) else []
    return Stage(
        step=part[-1].step,
        count=first.count,
        seconds=None,
        whole=whole,
        binned=(*binned, *_by_whole(wholes)),
    )


def _adaln(part: list[_Step]) -> Binned:
    sums = np.stack([one.bins for one in part])  # [n, 4, bins]
    products, pairs = np.stack([one.adaln for one in part]).T
    bins = (Sums(**dict(zip(_PARTS, sums[:, :, k].T, strict=True))) for k in range(sums.shape[2]))
    total = Sums(products=products, pairs=pairs, squares=0 * pairs, counts=pairs)
    return Binned(scope=ADALN, weights=part[0].weights, bins=tuple(bins), total=total)


def _by_whole(wholes: list[_Whole]) -> Iterator[Binned]:
    """The measurements of a stretch together, those with the last one's microbatches."""
    if not wholes:
        return
    alike = [one for one in wholes if one.shape == wholes[-1].shape]
    for scope, bins in (
        (WHOLE, [joined(parts) for parts in zip(*(one.whole for one in alike), strict=True)]),
        (SAME, [joined(parts) for parts in zip(*(one.adaln for one in alike), strict=True)]),
    ):
        *by_bin, total = bins
        yield Binned(scope=scope, weights=wholes[-1].weights, bins=tuple(by_bin), total=total)


def _checkpoints(samples: list[_Sample]) -> Iterator[Stage]:
    for step in sorted({sample.step for sample in samples}):
        here = [sample for sample in samples if sample.step == step]
        groups = [
            [sample for sample in here if sample.k == k]
            for k in range(-1, max(sample.k for sample in here) + 1)
        ]
        none = here[0].whole.part(slice(0))
        total, *bins = (joined([none, *(one.whole for one in group)]) for group in groups)
        yield Stage(
            step=step,
            count=here[0].count,
            seconds=sum(sample.seconds for sample in here),
            whole=total,
            binned=tuple(_of_checkpoint(groups, total, bins)),
        )


def _of_checkpoint(groups: list[list[_Sample]], total: Sums, bins: list[Sums]) -> Iterator[Binned]:
    """The whole model's bins and, where every sample tells of them, those of the adaLN layers."""
    if not bins:
        return
    weights = np.array([group[0].weight if group else 0.0 for group in groups[1:]])
    yield Binned(scope=WHOLE, weights=weights, bins=tuple(bins), total=total)
    seen = [[one.adaln for one in group if one.adaln] for group in groups]
    if [len(some) for some in seen] == [len(group) for group in groups]:
        none = next(some[0] for some in seen if some).part(slice(0))
        whole, *by_bin = (joined([none, *some]) for some in seen)
        yield Binned(scope=SAME, weights=weights, bins=tuple(by_bin), total=whole)


def _count(value: Any, *, least: int) -> int:
    if type(value) is not int or not least <= value < 2**53:
        raise ValueError(f"{value!r} is no count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e300:
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _numbers(values: Any) -> Floats:
    return np.array([_number(value) for value in values], dtype=np.float64)
