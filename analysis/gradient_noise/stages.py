"""Group a run's records of gradient noise into stages of training, or into checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.gradient_noise.records import (
    SampleNoise,
    StepNoise,
    WholeNoise,
    gram_sums_from_norms,
    parse_records,
    parse_sample,
    parse_step,
    parse_whole,
)
from analysis.stats.intervals import Floats
from analysis.stats.noise_scale import GramSums, concatenate
from analysis.stats.summary import MIN_VALUES
from configs.errors import ConfigError, Unreadable
from configs.load import flatten
from runs.folder import RunFolder
from runs.records import read_records, valid

# Scopes: adaLN layers at every step; the whole model; adaLN layers for the whole model's images.
ADALN, WHOLE, SAME = "adaln", "whole", "adaln_same_images"


@dataclass(frozen=True, kw_only=True)
class BinnedSums:
    """The sums of every bin of t in one scope; a bin may have no samples.

    `weights` is the share of the density of t in each bin. `total` holds the samples of |G|^2 over
    all t, for the same parameters.
    """

    scope: str
    weights: Floats
    bins: tuple[GramSums, ...]
    total: GramSums


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of training that ends at `step`, or the checkpoint of that step.

    `count` is K. `seconds` is the total time of a checkpoint's samples.
    """

    step: int
    count: int
    seconds: float | None
    whole: GramSums
    binned: tuple[BinnedSums, ...]


@dataclass(frozen=True, kw_only=True)
class GradientNoiseLog:
    """The stages of a run, its timestep `sampler`, and the number of `malformed` records.

    Under the `stratified` sampler the timesteps depend on one another, so the records cannot
    predict what another sampler would save.
    """

    name: str
    sampler: str
    stages: tuple[Stage, ...]
    malformed: int


def read_noise(run: RunFolder, *, stages: int) -> GradientNoiseLog:
    """Return a run's gradient noise in at most `stages` stages of `MIN_VALUES` records or more.

    A run over checkpoints has one stage for each. Raise `Unreadable` if nothing was recorded.
    """
    try:
        config = flatten(run.config_tree())
        records = valid(record for _, record in read_records(run.metrics_file))
    except (ConfigError, RecursionError, TypeError) as error:
        raise Unreadable(str(error)) from None
    samples, malformed = parse_records(records, "gns_sample", parse_sample)
    if samples:
        found = list(_checkpoints(samples))
    else:
        steps, malformed_steps = parse_records(records, "gns", parse_step)
        wholes, malformed_wholes = parse_records(records, "gns_whole", parse_whole)
        found = list(_training_stages(steps, wholes, stages))
        malformed += malformed_steps + malformed_wholes
    if not found:
        raise Unreadable(
            f"{run.name}: recorded no gradient noise; train it with gns.enabled=true, or measure "
            "its checkpoints with jobs/gns.sbatch"
        )
    sampler = str(config.get("sampler" if samples else "objective.sampler") or "uniform")
    return GradientNoiseLog(
        name=run.name, sampler=sampler, stages=tuple(found), malformed=malformed
    )


def _training_stages(
    steps: list[StepNoise], wholes: list[WholeNoise], stages: int
) -> Iterator[Stage]:
    """Yield equal stretches of records, cut also at changes of the microbatches."""
    groups: list[list[StepNoise]] = []
    for one in steps:
        if not groups or _shape(groups[-1][0]) != _shape(one):
            groups.append([])
        groups[-1].append(one)
    begin = -1
    for group in groups:
        parts = max(1, min(stages, len(group) // MIN_VALUES))
        for rows in np.array_split(np.arange(len(group)), parts):
            part = [group[int(row)] for row in rows]
            last = part[-1].step
            yield _stage(part, [one for one in wholes if begin < one.step <= last])
            begin = last


def _shape(one: StepNoise) -> tuple[int, int, int]:
    return one.count, one.batch, len(one.weights)


def _stage(part: list[StepNoise], wholes: list[WholeNoise]) -> Stage:
    first = part[0]
    whole = gram_sums_from_norms(
        np.array([one.small for one in part]),
        np.array([one.big for one in part]),
        count=first.count,
        batch=first.batch,
        weight=np.array([one.steps for one in part]),
    )
    binned = (*([_adaln(part)] if len(first.weights) else []), *_whole_model(wholes))
    return Stage(step=part[-1].step, count=first.count, seconds=None, whole=whole, binned=binned)


def _adaln(part: list[StepNoise]) -> BinnedSums:
    sums = np.stack([one.bins for one in part])  # [n, 4, bins]
    products, pairs = np.stack([one.adaln for one in part]).T
    bins = tuple(GramSums(columns=sums[:, :, k]) for k in range(sums.shape[2]))
    total = GramSums.of(products=products, pairs=pairs, squares=0 * pairs, counts=pairs)
    return BinnedSums(scope=ADALN, weights=part[0].weights, bins=bins, total=total)


def _whole_model(wholes: list[WholeNoise]) -> Iterator[BinnedSums]:
    """Yield both scopes of the measurements that have the last one's microbatches."""
    if not wholes:
        return
    alike = [one for one in wholes if one.shape == wholes[-1].shape]
    for scope, columns in (
        (WHOLE, zip(*(one.whole for one in alike), strict=True)),
        (SAME, zip(*(one.adaln for one in alike), strict=True)),
    ):
        *bins, total = map(concatenate, columns)
        yield BinnedSums(scope=scope, weights=wholes[-1].weights, bins=tuple(bins), total=total)


def _checkpoints(samples: list[SampleNoise]) -> Iterator[Stage]:
    for step in sorted({sample.step for sample in samples}):
        here = [sample for sample in samples if sample.step == step]
        groups = [
            [sample for sample in here if sample.bin == number]
            for number in range(-1, max(sample.bin for sample in here) + 1)
        ]
        none = here[0].whole.part(slice(0))
        total, *bins = (concatenate([none, *(one.whole for one in group)]) for group in groups)
        yield Stage(
            step=step,
            count=here[0].count,
            seconds=sum(sample.seconds for sample in here),
            whole=total,
            binned=tuple(_checkpoint_bins(groups, total, bins)),
        )


def _checkpoint_bins(
    groups: list[list[SampleNoise]], total: GramSums, bins: list[GramSums]
) -> Iterator[BinnedSums]:
    """Yield the whole model's bins and, if every sample has them, those of the adaLN layers."""
    if not bins:
        return
    weights = np.array([group[0].weight if group else 0.0 for group in groups[1:]])
    yield BinnedSums(scope=WHOLE, weights=weights, bins=tuple(bins), total=total)
    adaln = [[one.adaln for one in group if one.adaln] for group in groups]
    if [len(sums) for sums in adaln] == [len(group) for group in groups]:
        none = next(sums[0] for sums in adaln if sums).part(slice(0))
        total, *bins = (concatenate([none, *sums]) for sums in adaln)
        yield BinnedSums(scope=SAME, weights=weights, bins=tuple(bins), total=total)
