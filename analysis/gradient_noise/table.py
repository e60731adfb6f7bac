"""The noise scale of runs as table rows and as remarks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.gradient_noise.stages import GradientNoiseLog
from analysis.stats.intervals import Estimate
from analysis.stats.noise_scale import DETERMINED, NoiseSamples, noise_scale
from analysis.table import interval_text

Row = dict[str, Any]


def noise_rows(log: GradientNoiseLog) -> list[Row]:
    """Return a row per stage and, below it, a row per bin of t."""
    found = []
    for stage in log.stages:
        first = {"run": log.name, "step": stage.step}
        # The microbatches: K of b images.
        shape = {"k": stage.count, "b": stage.whole.batch, "seconds": stage.seconds}
        found.append(first | {"t": "all"} | _scale_fields(stage.whole) | shape)
        count = len(stage.bins)
        for k, samples in enumerate(stage.bins):
            t = f"{k / count:.4g}-{(k + 1) / count:.4g}"
            found.append(first | {"t": t} | _scale_fields(samples))
    return found


def _scale_fields(samples: NoiseSamples) -> Row:
    """Return a noise scale as fields; `b_simple`, `low` and `high` are None if undetermined."""
    scale = noise_scale(samples)
    b = scale.b_simple or Estimate(value=np.nan)
    return {
        "g2": _finite(scale.g2.value),
        "s": _finite(scale.s.value),
        "b_simple": _finite(b.value),
        "low": b.low,
        "high": b.high,
        "verdict": scale.verdict,
        "g2_low": scale.g2.low,
        "g2_high": scale.g2.high,
        "s_low": scale.s.low,
        "s_high": scale.s.high,
        "samples": len(samples),
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def by_step(table: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return `noise_rows` with a column per step that holds B_simple and its interval."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in table:
        first = {name: row[name] for name in ("run", "t")}
        line = found.setdefault(tuple(first.values()), first)
        text = row["verdict"]
        if row["b_simple"] is not None:
            between = interval_text(row["low"], row["high"], ".3g")
            text = f"{row['b_simple']:.3g} {between}".rstrip()
        line[f"step {row['step']}"] = text
    return list(found.values())


def noise_remarks(log: GradientNoiseLog, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the remarks that go below the table of a run."""
    if log.malformed:
        yield f"{log.name}: {log.malformed} malformed records of gradient noise were skipped"
    verdicts = [row["verdict"] for row in rows if row["t"] == "all"]
    undetermined = len(verdicts) - verdicts.count(DETERMINED)
    if undetermined:
        yield (
            f"{log.name}: undetermined in {undetermined} of {len(verdicts)} stages: the interval "
            "of |G|^2 or of tr Sigma contains zero, or there are too few samples"
        )
