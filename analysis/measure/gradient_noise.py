"""The gradient noise scale of runs, in stages of training or by checkpoint and bins of t."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.stats.intervals import Estimate, estimate_fields
from analysis.stats.mean import MIN_VALUES
from analysis.stats.noise_scale import DETERMINED, NoiseSamples, noise_scale
from configs.errors import ConfigError, Unreadable
from runs.folder import RunFolder
from runs.records import Record, read_records, valid


@dataclass(frozen=True, kw_only=True)
class NoiseRecord:
    """One measurement by `count` microbatches of `batch` images.

    `small` is the mean |g_k|^2 and `big` the |g|^2 over `steps` training steps (`gns`), or of one
    sample at a checkpoint (`gns_sample`), whose images are of a `bin` of t, or of all t if it is
    None.
    """

    step: int
    count: int
    batch: int
    small: float
    big: float
    steps: int = 1
    bin: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of training that ends at `step`, or the checkpoint of that step.

    `t` is `all` or a bin, such as `0.2-0.4`, which may have no samples. `count` is K. `seconds` is
    the time of all samples of a checkpoint.
    """

    step: int
    t: str = "all"
    count: int
    seconds: float | None = None
    samples: NoiseSamples


@dataclass(frozen=True, kw_only=True)
class GradientNoiseLog:
    """The stages of a run."""

    name: str
    stages: tuple[Stage, ...]


def read_noise(run: RunFolder, *, stages: int) -> GradientNoiseLog:
    """Return a run's gradient noise in at most `stages` stages of `MIN_VALUES` records or more.

    A run over checkpoints has one stage for each. Raise `Unreadable` if nothing was recorded.
    """
    try:
        records = valid(record for _, record in read_records(run.metrics_file))
    except (ConfigError, RecursionError, TypeError) as error:
        raise Unreadable(str(error)) from None
    steps, samples = _parsed(records, "gns"), _parsed(records, "gns_sample")
    found = list(_checkpoints(samples) if samples else _training_stages(steps, stages))
    if not found:
        raise Unreadable(
            f"{run.name}: recorded no gradient noise; train it with gns.enabled=true, or measure "
            "its checkpoints with jobs/gns.sbatch"
        )
    return GradientNoiseLog(name=run.name, stages=tuple(found))


def _parsed(records: Sequence[Record], name: str) -> list[NoiseRecord]:
    """Return the measurements of a field in the order of steps, without malformed ones."""
    found = []
    for record in (record for record in records if name in record):
        try:
            found.append(_parse(record, name))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            continue
    return sorted(found, key=lambda one: one.step)


def _parse(record: Record, name: str) -> NoiseRecord:
    fields, of_training = record[name], name == "gns"
    number = fields.get("bin")
    found = NoiseRecord(
        step=int(record["step"] if of_training else fields["checkpoint"]),
        count=int(fields["k"]),
        batch=int(fields["b"]),
        small=float(fields["small"]),
        big=float(fields["big"]),
        steps=int(fields["steps"]) if of_training else 1,
        bin=None if number is None else int(number),
        seconds=0.0 if of_training else float(fields["seconds"]),
    )
    if found.count < 2 or found.batch < 1 or not np.isfinite([found.small, found.big]).all():
        raise ValueError("no two microbatches, or no numbers")
    return found


def _training_stages(steps: list[NoiseRecord], stages: int) -> Iterator[Stage]:
    """Yield equal stretches of records, cut also at changes of the microbatches."""
    for _, alike in itertools.groupby(steps, key=lambda record: (record.count, record.batch)):
        group = list(alike)
        parts = max(1, min(stages, len(group) // MIN_VALUES))
        for rows in np.array_split(np.arange(len(group)), parts):
            part = [group[int(row)] for row in rows]
            samples = _samples(part, part[0])
            yield Stage(step=part[-1].step, count=part[0].count, samples=samples)


def _checkpoints(samples: list[NoiseRecord]) -> Iterator[Stage]:
    """Yield the samples of every checkpoint, of all t and then of each bin."""
    for step, group in itertools.groupby(samples, key=lambda sample: sample.step):
        here = list(group)
        count = max((one.bin + 1 for one in here if one.bin is not None), default=0)
        for number in (None, *range(count)):
            yield Stage(
                step=step,
                t="all" if number is None else f"{number / count:.4g}-{(number + 1) / count:.4g}",
                count=here[0].count,
                seconds=sum(one.seconds for one in here) if number is None else None,
                samples=_samples([one for one in here if one.bin == number], here[0]),
            )


def _samples(records: list[NoiseRecord], like: NoiseRecord) -> NoiseSamples:
    """Return the samples of records, which may be none; `like` has their batch."""
    small, big, steps, count = (
        np.array([getattr(one, name) for one in records], dtype=np.float64)
        for name in ("small", "big", "steps", "count")
    )
    return NoiseSamples.of(small, big, count=count, batch=like.batch, weight=steps)


def noise_rows(log: GradientNoiseLog) -> list[dict[str, Any]]:
    """Return a row per stage and bin of t, in which K microbatches of b images were measured.

    `b_simple` is None if the noise scale is undetermined.
    """
    found = []
    for stage in log.stages:
        scale = noise_scale(stage.samples)
        found.append(
            {
                "run": log.name,
                "step": stage.step,
                "t": stage.t,
                **estimate_fields("g2", _known(scale.g2)),
                **estimate_fields("s", _known(scale.s)),
                **estimate_fields("b_simple", scale.b_simple and _known(scale.b_simple)),
                "verdict": scale.verdict,
                "samples": len(stage.samples),
                "k": stage.count,
                "b": stage.samples.batch,
                "seconds": stage.seconds,
            }
        )
    return found


def _known(found: Estimate) -> Estimate | None:
    return found if np.isfinite(found.value) else None


def by_step(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return `noise_rows` with a column per step that holds B_simple and its interval."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in table:
        first = {name: row[name] for name in ("run", "t")}
        b, low, high = (row[f"b_simple{end}"] for end in ("", "_low", "_high"))
        text = row["verdict"] if b is None else f"{b:.3g} [{low:.3g}, {high:.3g}]"
        found.setdefault((row["run"], row["t"]), first)[f"step {row['step']}"] = text
    return list(found.values())


def noise_remarks(log: GradientNoiseLog, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the remarks that go below the table of a run."""
    verdicts = [row["verdict"] for row in rows if row["t"] == "all"]
    undetermined = len(verdicts) - verdicts.count(DETERMINED)
    if undetermined:
        yield (
            f"{log.name}: undetermined in {undetermined} of {len(verdicts)} stages: the interval "
            "of |G|^2 or of tr Sigma contains zero, or there are too few samples"
        )
