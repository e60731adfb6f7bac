"""The noise scale of runs as table rows and as remarks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.gradient_noise.records import SAME, WHOLE
from analysis.gradient_noise.stages import BinnedSums, GradientNoiseLog, Stage
from analysis.stats.noise_scale import DETERMINED, NoiseScale, noise_scale
from analysis.table import interval_text


@dataclass(frozen=True, kw_only=True)
class BinNoise:
    """The noise scale of one bin of t in one scope."""

    t_low: float
    t_high: float
    scope: str
    scale: NoiseScale
    samples: int


@dataclass(frozen=True, kw_only=True)
class StageNoise:
    """A stage's noise scale over all t, and by scope and bin."""

    stage: Stage
    scale: NoiseScale
    bins: dict[str, list[BinNoise]]

    @property
    def step(self) -> int:
        """The step at which the stage ends."""
        return self.stage.step


def noise_by_stage(log: GradientNoiseLog) -> list[StageNoise]:
    """Return the noise of every stage of a run, in order."""
    return [
        StageNoise(
            stage=stage,
            scale=noise_scale(stage.whole),
            bins={binned.scope: _bins(binned) for binned in stage.binned},
        )
        for stage in log.stages
    ]


def _bins(binned: BinnedSums) -> list[BinNoise]:
    count = len(binned.bins)
    return [
        BinNoise(
            t_low=k / count,
            t_high=(k + 1) / count,
            scope=binned.scope,
            scale=noise_scale(sums),
            samples=len(sums),
        )
        for k, sums in enumerate(binned.bins)
    ]


def noise_rows(log: GradientNoiseLog, stages: list[StageNoise]) -> list[dict[str, Any]]:
    """Return a row per stage and, below it, a row per bin and scope."""
    found = []
    for stage in stages:
        first = {"run": log.name, "step": stage.step}
        whole = {"t": "all", "scope": WHOLE} | scale_fields(stage.scale)
        found.append(first | whole | _size_fields(stage.stage))
        for one in (one for bins in stage.bins.values() for one in bins):
            t = f"{one.t_low:.4g}-{one.t_high:.4g}"
            fields = scale_fields(one.scale) | {"samples": one.samples}
            found.append(first | {"t": t, "scope": one.scope} | fields)
    return found


def by_step(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return `noise_rows` with a column per step that holds B_simple and its interval."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in table:
        first = {name: row[name] for name in ("run", "scope", "t")}
        line = found.setdefault(tuple(first.values()), first)
        text = row["verdict"]
        if row["b_simple"] is not None:
            between = interval_text(row["low"], row["high"], ".3g")
            text = f"{row['b_simple']:.3g} {between}".rstrip()
        line[f"step {row['step']}"] = text
    return list(found.values())


def _size_fields(stage: Stage) -> dict[str, Any]:
    """Return the number of samples, their microbatches K of b images, and their seconds."""
    shape = {"samples": len(stage.whole), "k": stage.count, "b": stage.whole.batch}
    return shape | {"seconds": stage.seconds}


def adaln_over_whole(bins: Sequence[BinNoise]) -> float | None:
    """Return the ratio of adaLN's noise scale to the whole model's for the same images."""
    known = {one.scope: one.scale.b_simple for one in bins}
    adaln, whole = known.get(SAME), known.get(WHOLE)
    return adaln.value / whole.value if adaln and whole else None


def scale_fields(scale: NoiseScale) -> dict[str, Any]:
    """Return a noise scale as fields; `b_simple`, `low` and `high` are None if undetermined."""
    b = scale.b_simple
    fields: dict[str, Any] = {
        "g2": _finite(scale.g2.value),
        "s": _finite(scale.s.value),
        "b_simple": b.value if b else None,
        "low": b.low if b else None,
        "high": b.high if b else None,
        "verdict": scale.verdict,
    }
    for name, estimate in (("g2", scale.g2), ("s", scale.s)):
        fields |= {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return fields


def noise_remarks(log: GradientNoiseLog, stages: list[StageNoise]) -> Iterator[str]:
    """Yield the remarks that go below the table of a run."""
    if log.malformed:
        yield f"{log.name}: {log.malformed} malformed records of gradient noise were skipped"
    undetermined = sum(stage.scale.verdict != DETERMINED for stage in stages)
    if undetermined:
        yield (
            f"{log.name}: undetermined in {undetermined} of {len(stages)} stages: the interval of "
            "|G|^2 or of tr Sigma contains zero, or there are too few samples"
        )
    last = stages[-1]
    ratios = [adaln_over_whole(same) for same in zip(*last.bins.values(), strict=False)]
    known = [one for one in ratios if one is not None]
    if known:
        yield (
            f"{log.name}, step {last.step}: adaLN's noise scales are {min(known):.2g} to "
            f"{max(known):.2g} times the whole model's ({len(known)} of {len(ratios)} bins)"
        )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
