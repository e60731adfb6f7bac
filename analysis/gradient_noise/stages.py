"""Group a run's records of gradient noise into stages of training, or into checkpoints."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.gradient_noise.records import NoiseRecord, parse_records
from analysis.stats.mean import MIN_VALUES
from analysis.stats.noise_scale import GramSums
from configs.errors import ConfigError, Unreadable
from runs.folder import RunFolder
from runs.records import read_records, valid


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of training that ends at `step`, or the checkpoint of that step.

    `count` is K. `seconds` is the total time of a checkpoint's samples. `bins` are the samples of
    each bin of t, which may have none.
    """

    step: int
    count: int
    seconds: float | None
    whole: GramSums
    bins: tuple[GramSums, ...] = ()


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
    """Yield equal stretches of records, cut also at changes of the microbatches."""
    for _, alike in itertools.groupby(steps, key=lambda record: (record.count, record.batch)):
        group = list(alike)
        parts = max(1, min(stages, len(group) // MIN_VALUES))
        for rows in np.array_split(np.arange(len(group)), parts):
            part = [group[int(row)] for row in rows]
            yield Stage(step=part[-1].step, count=part[0].count, seconds=None, whole=_sums(part))


def _sums(records: list[NoiseRecord], *, batch: int = 1) -> GramSums:
    """Return the samples of records of the same microbatches; `batch` is that of no record."""
    columns = np.array([one.sums for one in records], dtype=np.float64).reshape(-1, 4)
    return GramSums(columns=columns, batch=records[0].batch if records else batch)


def _checkpoints(samples: list[NoiseRecord]) -> Iterator[Stage]:
    """Yield the samples of every checkpoint."""
    ordered = sorted(samples, key=lambda sample: sample.step)
    for step, group in itertools.groupby(ordered, key=lambda sample: sample.step):
        here = list(group)
        count = max((one.bin + 1 for one in here if one.bin is not None), default=0)
        whole, *bins = (
            _sums([one for one in here if one.bin == number], batch=here[0].batch)
            for number in (None, *range(count))
        )
        yield Stage(
            step=step,
            count=here[0].count,
            seconds=sum(sample.seconds for sample in here),
            whole=whole,
            bins=tuple(bins),
        )
