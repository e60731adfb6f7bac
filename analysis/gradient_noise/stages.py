"""Group a run's records of gradient noise into stages of training, or into checkpoints."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.gradient_noise.records import (
    ADALN,
    SAME,
    STEPS,
    WHOLE,
    NoiseRecord,
    padded,
    parse_records,
)
from analysis.stats.intervals import Floats
from analysis.stats.mean import MIN_VALUES
from analysis.stats.noise_scale import GramSums, concatenate
from configs.errors import ConfigError, Unreadable
from runs.folder import RunFolder
from runs.records import read_records, valid


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
    """The stages of a run, and the number of `malformed` records."""

    name: str
    stages: tuple[Stage, ...]
    malformed: int


def read_noise(run: RunFolder, *, stages: int) -> GradientNoiseLog:
    """Return a run's gradient noise in at most `stages` stages of `MIN_VALUES` records or more.

    A run over checkpoints has one stage for each. Raise `Unreadable` if nothing was recorded.
    """
    try:
        records = valid(record for _, record in read_records(run.metrics_file))
    except (ConfigError, RecursionError, TypeError) as error:
        raise Unreadable(str(error)) from None
    parsed, malformed = parse_records(records)
    samples = parsed["gns_sample"]
    if samples:
        found = list(_checkpoints(samples))
    else:
        found = list(_training_stages(parsed["gns"], stages))
    if not found:
        raise Unreadable(
            f"{run.name}: recorded no gradient noise; train it with gns.enabled=true, or measure "
            "its checkpoints with jobs/gns.sbatch"
        )
    return GradientNoiseLog(name=run.name, stages=tuple(found), malformed=malformed)


def _training_stages(steps: list[NoiseRecord], stages: int) -> Iterator[Stage]:
    """Yield equal stretches of records, cut also at changes of the microbatches."""
    for _, alike in itertools.groupby(steps, key=lambda record: record.shape):
        group = list(alike)
        parts = max(1, min(stages, len(group) // MIN_VALUES))
        for rows in np.array_split(np.arange(len(group)), parts):
            part = [group[int(row)] for row in rows]
            yield Stage(
                step=part[-1].step,
                count=part[0].count,
                seconds=None,
                whole=concatenate([one.sums[STEPS][0] for one in part]),
                binned=(_binned(part, ADALN),) if len(part[0].weights) else (),
            )


def _binned(records: list[NoiseRecord], scope: str) -> BinnedSums:
    """Return the sums of records of one shape."""
    columns = zip(*(one.sums[scope] for one in records), strict=True)
    *bins, total = map(concatenate, columns)
    weights = np.max([one.weights for one in records], axis=0)
    return BinnedSums(scope=scope, weights=weights, bins=tuple(bins), total=total)


def _checkpoints(samples: list[NoiseRecord]) -> Iterator[Stage]:
    """Yield the samples of every checkpoint; adaLN's if every sample has them."""
    ordered = sorted(samples, key=lambda sample: sample.step)
    for step, group in itertools.groupby(ordered, key=lambda sample: sample.step):
        here = list(group)
        bins = max(len(sample.weights) for sample in here)
        padding = [padded(sample, bins) for sample in here]
        scopes = [scope for scope in (WHOLE, SAME) if all(scope in one.sums for one in here)]
        binned = [_binned(padding, scope) for scope in scopes]
        yield Stage(
            step=step,
            count=here[0].count,
            seconds=sum(sample.seconds or 0.0 for sample in here),
            whole=binned[0].total,
            binned=tuple(binned) if bins else (),
        )
