"""The gradient noise scale of runs, in stages of training or by checkpoint and bins of t."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.stats.intervals import Estimate, estimate_fields
from analysis.stats.mean import MIN_VALUES
from analysis.stats.noise_scale import noise_scale
from configs.errors import ConfigError, Unreadable
from runs.folder import RunFolder
from runs.records import Record, read_records, valid

DETERMINED, UNDETERMINED = "determined", "undetermined"


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


def noise_rows(run: RunFolder, *, stages: int) -> list[dict[str, Any]]:
    """Return a row for each of at most `stages` stages of `MIN_VALUES` records or more.

    A run over checkpoints has one for each of these, and one for each bin of t. K microbatches of b
    images were measured; `b_simple` is None if the noise scale is undetermined. Raise `Unreadable`
    if nothing was recorded.
    """
    try:
        records = valid(record for _, record in read_records(run.metrics_file))
    except (ConfigError, RecursionError, TypeError) as error:
        raise Unreadable(str(error)) from None
    steps, samples = _parsed(records, "gns"), _parsed(records, "gns_sample")
    found = list(_of_checkpoints(samples) if samples else _of_training(steps, stages))
    if not found:
        raise Unreadable(
            f"{run.name}: recorded no gradient noise; train it with gns.enabled=true, or measure "
            "its checkpoints with jobs/gns.sbatch"
        )
    return [{"run": run.name} | row for row in found]


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


def _of_training(steps: list[NoiseRecord], stages: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of equal stretches of records, cut also at changes of the microbatches."""
    for _, alike in itertools.groupby(steps, key=lambda record: (record.count, record.batch)):
        group = list(alike)
        parts = max(1, min(stages, len(group) // MIN_VALUES))
        for rows in np.array_split(np.arange(len(group)), parts):
            yield _row([group[int(row)] for row in rows], like=group[int(rows[-1])])


def _of_checkpoints(samples: list[NoiseRecord]) -> Iterator[dict[str, Any]]:
    """Yield the rows of every checkpoint, of all t and then of each bin, which may be empty."""
    for _, group in itertools.groupby(samples, key=lambda sample: sample.step):
        here = list(group)
        count = max((one.bin + 1 for one in here if one.bin is not None), default=0)
        whole = [one for one in here if one.bin is None]
        yield _row(whole, like=here[0]) | {"seconds": sum(one.seconds for one in here)}
        for number in range(count):
            t = f"{number / count:.4g}-{(number + 1) / count:.4g}"
            yield _row([one for one in here if one.bin == number], like=here[0], t=t)


def _row(records: Sequence[NoiseRecord], *, like: NoiseRecord, t: str = "all") -> dict[str, Any]:
    """Return the row of records, which may be none, of one kind; `like` is of this kind."""
    small, big, steps, count = (
        np.array([getattr(one, name) for one in records], dtype=np.float64)
        for name in ("small", "big", "steps", "count")
    )
    scale = noise_scale(small, big, count=count, batch=like.batch, weight=steps)
    return {
        "step": like.step,
        "t": t,
        **estimate_fields("g2", _known(scale.g2)),
        **estimate_fields("s", _known(scale.s)),
        **estimate_fields("b_simple", scale.b_simple and _known(scale.b_simple)),
        "verdict": UNDETERMINED if scale.b_simple is None else DETERMINED,
        "samples": len(records),
        "k": like.count,
        "b": like.batch,
        "seconds": None,
    }


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
