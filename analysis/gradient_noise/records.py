"""What runs recorded of their gradients' noise: while training, and over saved checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.gradient_noise.noise_records import (
    PARTS,
    SampleNoise,
    StepNoise,
    WholeNoise,
    sample_noise,
    sound,
    step_noise,
    whole_noise,
)
from analysis.stats.intervals import MIN_VALUES, Floats
from analysis.stats.noise_scale import GramSums, concatenate, sums_of_norms
from configs.errors import ConfigError, Unreadable
from configs.load import flatten
from configs.run.folder import RunFolder
from configs.run.records import read_records, valid

# Of the adaLN layers in every step; of the whole model; of the adaLN layers for the same images.
ADALN, WHOLE, SAME = "adaln", "whole", "adaln_same_images"


@dataclass(frozen=True, kw_only=True)
class BinnedSums:
    """The noise of every bin of t by itself; a bin without samples has none.

    `weights` is how much of the density of t each bin holds, `total` the samples of |G|^2 over
    all t, of the same parameters.
    """

    scope: str
    weights: Floats
    bins: tuple[GramSums, ...]
    total: GramSums


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of training that ends with `step`, or the checkpoint of that step.

    `count` is K, and `seconds` what the samples of a checkpoint took together.
    """

    step: int
    count: int
    seconds: float | None
    whole: GramSums
    binned: tuple[BinnedSums, ...]


@dataclass(frozen=True, kw_only=True)
class GradientNoiseLog:
    """The stages of a run; `sampler` is how its times were drawn, `odd` how many records are none.

    Under `stratified` times depend on one another, and what another sampler would save is not
    told by them.
    """

    name: str
    sampler: str
    stages: tuple[Stage, ...]
    odd: int


def read_noise(run: RunFolder, *, stages: int) -> GradientNoiseLog:
    """The noise that a run recorded, in at most so many stages of `MIN_VALUES` records or more.

    A run over checkpoints has a stage for each of them. `Unreadable` where it recorded none.
    """
    try:
        config = flatten(run.asked())
        records = valid(record for _, record in read_records(run.metrics_file))
    except (ConfigError, RecursionError, TypeError) as error:
        raise Unreadable(str(error)) from None
    samples, odd = sound(records, "gns_sample", sample_noise)
    if samples:
        found = list(_checkpoints(samples))
    else:
        steps, bad = sound(records, "gns", step_noise)
        wholes, worse = sound(records, "gns_whole", whole_noise)
        found, odd = list(_windows(steps, wholes, stages)), odd + bad + worse
    if not found:
        raise Unreadable(
            f"{run.name}: recorded no noise of its gradients; train it with gns.enabled=true, or "
            "measure its checkpoints with jobs/gns.sbatch"
        )
    key = "objective.sampler" if not samples else "sampler"
    sampler = str(config.get(key) or "uniform")
    return GradientNoiseLog(name=run.name, sampler=sampler, stages=tuple(found), odd=odd)


def _windows(steps: list[StepNoise], wholes: list[WholeNoise], stages: int) -> Iterator[Stage]:
    """Equal stretches of records, cut also where the microbatches change."""
    alike: list[list[StepNoise]] = []
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


def _shape(one: StepNoise) -> tuple[int, int, int]:
    return one.count, one.batch, len(one.weights)


def _stage(part: list[StepNoise], wholes: list[WholeNoise]) -> Stage:
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


def _adaln(part: list[StepNoise]) -> BinnedSums:
    sums = np.stack([one.bins for one in part])  # [n, 4, bins]
    products, pairs = np.stack([one.adaln for one in part]).T
    bins = (
        GramSums(**dict(zip(PARTS, sums[:, :, k].T, strict=True))) for k in range(sums.shape[2])
    )
    total = GramSums(products=products, pairs=pairs, squares=0 * pairs, counts=pairs)
    return BinnedSums(scope=ADALN, weights=part[0].weights, bins=tuple(bins), total=total)


def _by_whole(wholes: list[WholeNoise]) -> Iterator[BinnedSums]:
    """The measurements of a stretch together, those with the last one's microbatches."""
    if not wholes:
        return
    alike = [one for one in wholes if one.shape == wholes[-1].shape]
    for scope, bins in (
        (WHOLE, [concatenate(parts) for parts in zip(*(one.whole for one in alike), strict=True)]),
        (SAME, [concatenate(parts) for parts in zip(*(one.adaln for one in alike), strict=True)]),
    ):
        *by_bin, total = bins
        yield BinnedSums(scope=scope, weights=wholes[-1].weights, bins=tuple(by_bin), total=total)


def _checkpoints(samples: list[SampleNoise]) -> Iterator[Stage]:
    for step in sorted({sample.step for sample in samples}):
        here = [sample for sample in samples if sample.step == step]
        groups = [
            [sample for sample in here if sample.k == k]
            for k in range(-1, max(sample.k for sample in here) + 1)
        ]
        none = here[0].whole.part(slice(0))
        total, *bins = (concatenate([none, *(one.whole for one in group)]) for group in groups)
        yield Stage(
            step=step,
            count=here[0].count,
            seconds=sum(sample.seconds for sample in here),
            whole=total,
            binned=tuple(_of_checkpoint(groups, total, bins)),
        )


def _of_checkpoint(
    groups: list[list[SampleNoise]], total: GramSums, bins: list[GramSums]
) -> Iterator[BinnedSums]:
    """The whole model's bins and, where every sample tells of them, those of the adaLN layers."""
    if not bins:
        return
    weights = np.array([group[0].weight if group else 0.0 for group in groups[1:]])
    yield BinnedSums(scope=WHOLE, weights=weights, bins=tuple(bins), total=total)
    seen = [[one.adaln for one in group if one.adaln] for group in groups]
    if [len(some) for some in seen] == [len(group) for group in groups]:
        none = next(some[0] for some in seen if some).part(slice(0))
        whole, *by_bin = (concatenate([none, *some]) for some in seen)
        yield BinnedSums(scope=SAME, weights=weights, bins=tuple(by_bin), total=whole)
