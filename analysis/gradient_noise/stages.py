"""Group a run's records of gradient noise into stages of training, or into checkpoints."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.gradient_noise.records import ADALN, SAME, STEPS, WHOLE, NoiseRecord, parse_records
from analysis.stats.intervals import Floats
from analysis.stats.mean import MIN_VALUES
from analysis.stats.noise_scale import GramSums
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
    found = list(_checkpoints(samples) if samples else _training_stages(parsed["gns"], stages))
    if not found:
        raise Unreadable(
            f"{run.name}: recorded no gradient noise; train it with gns.enabled=true, or measure "
            "its checkpoints with jobs/gns.sbatch"
        )
    return GradientNoiseLog(name=run.name, stages=tuple(found), malformed=malformed)


def _training_stages(steps: list[NoiseRecord], stages: int) -> Iterator[Stage]:
    """Yield equal stretches of records, cut also at changes of the microbatches or bins."""
    for _, alike in itertools.groupby(steps, key=lambda r: (r.count, r.batch, len(r.weights))):
        group = list(alike)
        parts = max(1, min(stages, len(group) // MIN_VALUES))
        for rows in np.array_split(np.arange(len(group)), parts):
            part = [group[int(row)] for row in rows]
            yield Stage(
                step=part[-1].step,
                count=part[0].count,
                seconds=None,
                whole=_of_rows([one.sums[STEPS][0] for one in part], batch=part[0].batch),
                binned=(_every_bin(part),) if len(part[0].weights) else (),
            )


def _of_rows(rows: list[Floats], *, batch: int = 1) -> GramSums:
    return GramSums(columns=np.array(rows, dtype=np.float64).reshape(-1, 4), batch=batch)


def _every_bin(part: list[NoiseRecord]) -> BinnedSums:
    """Return the sums of records that each have every bin, and after these all t."""
    every = np.stack([one.sums[ADALN] for one in part], axis=1)  # [bins + 1, n, 4]
    *bins, total = (_of_rows(list(rows)) for rows in every)
    weights = np.max([one.weights for one in part], axis=0)
    return BinnedSums(scope=ADALN, weights=weights, bins=tuple(bins), total=total)


def _checkpoints(samples: list[NoiseRecord]) -> Iterator[Stage]:
    """Yield the samples of every checkpoint; adaLN's if every sample has them."""
    ordered = sorted(samples, key=lambda sample: sample.step)
    for step, group in itertools.groupby(ordered, key=lambda sample: sample.step):
        here = list(group)
        scopes = [scope for scope in (WHOLE, SAME) if all(scope in one.sums for one in here)]
        binned = [_sampled_bins(here, scope) for scope in scopes]
        yield Stage(
            step=step,
            count=here[0].count,
            seconds=sum(sample.seconds for sample in here),
            whole=binned[0].total,
            binned=tuple(binned) if binned[0].bins else (),
        )


def _sampled_bins(samples: list[NoiseRecord], scope: str) -> BinnedSums:
    """Return the sums of samples that each have one bin, or all t."""
    batch = samples[0].batch if scope == WHOLE else 1
    weights = {one.bin: float(one.weights[0]) for one in samples if one.bin is not None}
    total, *bins = (
        _of_rows([one.sums[scope][0] for one in samples if one.bin == number], batch=batch)
        for number in (None, *range(max(weights, default=-1) + 1))
    )
    shares = np.array([weights.get(number, 0.0) for number in range(len(bins))])
    return BinnedSums(scope=scope, weights=shares, bins=tuple(bins), total=total)
