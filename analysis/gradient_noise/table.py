"""The noise scale of runs as rows of a table, and as JSON by run, stage and bin."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.gradient_noise.records import SAME, WHOLE, BinnedSums, GradientNoiseLog, Stage
from analysis.gradient_noise.variance_reduction import VarianceReduction, predict_variance
from analysis.measure.speed_table import interval_text
from analysis.stats.intervals import Estimate
from analysis.stats.noise_scale import DETERMINED, GramSums, NoiseScale, noise_scale


@dataclass(frozen=True, kw_only=True)
class BinNoise:
    """The noise scale of one bin of t, in one scope."""

    t_low: float
    t_high: float
    weight: float
    scope: str
    scale: NoiseScale
    samples: int


@dataclass(frozen=True, kw_only=True)
class StageNoise:
    """What one stage of a run tells: of all t, of every bin by scope, and what could be saved."""

    step: int
    count: int
    seconds: float | None
    scale: NoiseScale
    sums: GramSums
    bins: dict[str, list[BinNoise]]
    variance_reductions: dict[str, VarianceReduction]


def noise_by_stage(log: GradientNoiseLog) -> list[StageNoise]:
    """Every stage of a run, in order."""
    return [_told(stage, log) for stage in log.stages]


def _told(stage: Stage, log: GradientNoiseLog) -> StageNoise:
    scale = noise_scale(stage.whole)
    saved = {}
    for binned in stage.binned if log.sampler != "stratified" else ():
        found = predict_variance(binned)
        if found:
            saved[binned.scope] = found
    bins = {binned.scope: list(_bins(binned)) for binned in stage.binned}
    return StageNoise(
        step=stage.step,
        count=stage.count,
        seconds=stage.seconds,
        scale=scale,
        sums=stage.whole,
        bins=bins,
        variance_reductions=saved,
    )


def _bins(binned: BinnedSums) -> Iterator[BinNoise]:
    count = len(binned.bins)
    for k, sums in enumerate(binned.bins):
        yield BinNoise(
            t_low=k / count,
            t_high=(k + 1) / count,
            weight=float(binned.weights[k]),
            scope=binned.scope,
            scale=noise_scale(sums),
            samples=len(sums),
        )


def noise_rows(log: GradientNoiseLog, stages: list[StageNoise]) -> list[dict[str, Any]]:
    """A row per stage and, below it, per bin and scope."""
    found = []
    for stage in stages:
        first = {"run": log.name, "step": stage.step}
        found.append(
            first | {"t": "all", "scope": WHOLE} | scale_fields(stage.scale) | size_fields(stage)
        )
        for bins in stage.bins.values():
            for one in bins:
                t = f"{one.t_low:.4g}-{one.t_high:.4g}"
                fields = scale_fields(one.scale) | {"samples": one.samples}
                found.append(first | {"t": t, "scope": one.scope} | fields)
    return found


def by_step(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`rows` with a column per step that holds B_simple and its interval alone."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in table:
        first = {name: row[name] for name in ("run", "scope", "t")}
        line = found.setdefault(tuple(first.values()), first)
        between = interval_text(row["low"], row["high"], ".3g")
        known = row["b_simple"] is not None
        line[f"step {row['step']}"] = (
            f"{row['b_simple']:.3g} {between}".rstrip() if known else row["verdict"]
        )
    return list(found.values())


def run_dict(log: GradientNoiseLog, stages: list[StageNoise]) -> dict[str, Any]:
    """`{run, steps: [{step, g2, s, b_simple, low, high, verdict, bins: [...]}]}`."""
    return {"run": log.name, "steps": [_stage_dict(stage) for stage in stages]}


def _stage_dict(stage: StageNoise) -> dict[str, Any]:
    return {
        "step": stage.step,
        **scale_fields(stage.scale),
        **size_fields(stage),
        "bins": list(_bin_dicts(stage)),
        "savings": [_savings_dict(found) for found in stage.variance_reductions.values()],
    }


def size_fields(stage: StageNoise) -> dict[str, Any]:
    """How many samples there are, of how many microbatches, and what they took."""
    return {
        "samples": len(stage.sums),
        "k": stage.count,
        "b": stage.sums.batch,
        "seconds": stage.seconds,
    }


def _bin_dicts(stage: StageNoise) -> Iterator[dict[str, Any]]:
    """A bin in its first scope, then in the others, and how far adaLN and the whole disagree."""
    scopes = list(stage.bins.values())
    for same in zip(*scopes, strict=True) if scopes else ():
        first, *others = same
        fields = {
            "t_low": first.t_low,
            "t_high": first.t_high,
            "weight": first.weight,
            "scope": first.scope,
            **scale_fields(first.scale),
        }
        fields |= {other.scope: scale_fields(other.scale) for other in others}
        yield fields | {"adaln_over_whole": adaln_over_whole(same)}


def adaln_over_whole(bins: Sequence[BinNoise]) -> float | None:
    """The noise scale by adaLN over the whole model's for the same images; None if unknown."""
    known = {one.scope: one.scale.b_simple for one in bins}
    adaln, whole = known.get(SAME), known.get(WHOLE)
    return adaln.value / whole.value if adaln and whole else None


def scale_fields(scale: NoiseScale) -> dict[str, Any]:
    """A noise scale as fields; an undetermined one has no `b_simple`, and no `low` and `high`."""
    fields: dict[str, Any] = {"g2": _finite(scale.g2.value), "s": _finite(scale.s.value)}
    b = scale.b_simple
    fields |= {
        "b_simple": b.value if b else None,
        "low": b.low if b else None,
        "high": b.high if b else None,
        "verdict": scale.verdict,
    }
    for name, estimate in (("g2", scale.g2), ("s", scale.s)):
        fields |= {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return fields


def noise_remarks(log: GradientNoiseLog, stages: list[StageNoise]) -> Iterator[str]:
    """What is to be said beside the table of a run."""
    if log.odd:
        yield f"{log.name}: {log.odd} records of noise cannot be read and were passed over"
    if log.sampler == "stratified":
        yield f"{log.name}: its times are stratified; tr Sigma is per image of a whole group"
    undetermined = sum(stage.scale.verdict != DETERMINED for stage in stages)
    if undetermined:
        yield (
            f"{log.name}: undetermined in {undetermined} of {len(stages)} stages: the interval of "
            "|G|^2 or of tr Sigma holds zero, or there are too few samples"
        )
    last = stages[-1]
    ratios = [adaln_over_whole(same) for same in zip(*last.bins.values(), strict=False)]
    known = [one for one in ratios if one is not None]
    if known:
        yield (
            f"{log.name}, step {last.step}: by adaLN the bins' scales are {min(known):.2g} to "
            f"{max(known):.2g} times the whole model's ({len(known)} of {len(ratios)} bins)"
        )
    for found in last.variance_reductions.values():
        yield (
            f"{log.name}, step {last.step}, {found.scope}: variance left by stratified times "
            f"{_interval(found.stratified)}, by times drawn by variance {_interval(found.variance)}"
        )
        shares = ", ".join(f"{share:.3g}" for share in found.bin_shares)
        yield f"{log.name}, step {last.step}, {found.scope}: objective.bin_shares=[{shares}]"


def _savings_dict(found: VarianceReduction) -> dict[str, Any]:
    return {
        "scope": found.scope,
        "stratified": found.stratified.value,
        "stratified_low": found.stratified.low,
        "stratified_high": found.stratified.high,
        "variance": found.variance.value,
        "variance_low": found.variance.low,
        "variance_high": found.variance.high,
        "gain": found.gain,
        "bin_shares": found.bin_shares.tolist(),
    }


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
