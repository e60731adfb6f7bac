"""Gradient noise by bins of t and the gain of other samplers: docs/studies/gradient-noise.md.

    python -m benchmarks.timestep_samplers STUDY [--measured RUN ...]

STUDY is the folder of configs/studies/digits-timesteps.yaml, each RUN one of jobs/gns.sbatch over
the checkpoints of one of its `uniform` runs. Arms are compared seed by seed with `uniform`, which
draws every t independently; intervals are Student's, of the logs of these ratios. The output is
Markdown, the same bytes for the same runs.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from analysis.gradient_noise.stages import ADALN, SAME, WHOLE, BinnedSums, read_noise
from analysis.gradient_noise.table import noise_by_stage
from analysis.gradient_noise.variance_reduction import predict_variance
from analysis.stats.intervals import Estimate, Floats
from analysis.stats.noise_scale import GramSums, concatenate, noise_scale
from runs.folder import RunFolder, find_runs
from runs.records import valid
from runs.study_folder import is_study_folder

STAGES = 4
BASE, OTHERS = "uniform", ("stratified", "variance")
Curve = dict[int, float]


def main(arguments: list[str]) -> int:
    """Print the tables; return 2 if the folder is no such study."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("study", type=Path)
    options.add_argument("--measured", type=Path, nargs="*", default=[])
    chosen = options.parse_args(arguments)
    study, measured = chosen.study, [RunFolder(path) for path in chosen.measured]
    if not is_study_folder(study):
        print(f"{study}: not a study's folder", file=sys.stderr)
        return 2
    arms = whole_seeds(study)
    seeds = sorted(arms[BASE])
    print(f"{len(seeds)} seeds: {', '.join(map(str, seeds))}.\n")
    print_arrivals(arms, seeds)
    print()
    print_variance(arms, seeds)
    print()
    print_bins([arms[BASE][seed] for seed in seeds], ADALN)
    for scope in (WHOLE, SAME) if measured else ():
        print()
        print_bins(measured, scope)
    if measured:
        print()
        print_disagreement(measured)
        print()
        print_variance_reduction(measured)
    return 0


def whole_seeds(study: Path) -> dict[str, dict[int, RunFolder]]:
    """Return the runs of every arm by seed, for the seeds that all arms have completed."""
    arms: dict[str, dict[int, RunFolder]] = {name: {} for name in (BASE, *OTHERS)}
    for run in find_runs(study / "cells"):
        tree = run.config_tree()
        if any(record.get("event") == "done" for record in run.records()):
            arms[tree["objective"]["sampler"]][tree["seed"]] = run
    common = set.intersection(*(set(runs) for runs in arms.values()))
    return {name: {seed: runs[seed] for seed in sorted(common)} for name, runs in arms.items()}


def curve(run: RunFolder) -> Curve:
    """Return the validation loss by images."""
    evaluations = [r for r in valid(run.records()) if "validation_loss" in r]
    return {r["images"]: r["validation_loss"] for r in sorted(evaluations, key=lambda r: r["step"])}


def images_to(found: Curve, target: float) -> float:
    """Return the images at which a curve first crosses `target`, by linear interpolation."""
    images, losses = np.array(list(found), float), np.array(list(found.values()))
    at = int(np.argmax(losses <= target))
    if losses[at] > target:
        raise ValueError(f"a run ends above {target:.4g}")
    if at == 0:
        return float(images[0])
    part = (losses[at - 1] - target) / (losses[at - 1] - losses[at])
    return float(images[at - 1] + part * (images[at] - images[at - 1]))


def print_arrivals(arms: dict[str, dict[int, RunFolder]], seeds: list[int]) -> None:
    """Print the images to two losses, and the last loss, of every arm against the base."""
    curves = {name: {seed: curve(runs[seed]) for seed in seeds} for name, runs in arms.items()}
    last = {seed: list(curves[BASE][seed].values()) for seed in seeds}
    half = float(np.mean([values[len(values) // 2] for values in last.values()]))
    worst = max(list(found.values())[-1] for runs in curves.values() for found in runs.values())

    def by(of: Callable[[Curve], float]) -> dict[str, Floats]:
        return {name: np.array([of(runs[seed]) for seed in seeds]) for name, runs in curves.items()}

    rows = {
        f"images to {half:.4g}": by(lambda found: images_to(found, half)),
        f"images to {worst:.4g}": by(lambda found: images_to(found, worst)),
        "last validation loss": by(lambda found: list(found.values())[-1]),
    }
    print(f"| | {BASE} | " + " | ".join(f"{name} / {BASE}" for name in OTHERS) + " |")
    print("|---|---|---|---|")
    for title, found in rows.items():
        cells = [shown(paired(found[name], found[BASE])) for name in OTHERS]
        print(f"| {title} | {found[BASE].mean():.4g} | " + " | ".join(cells) + " |")


def print_variance(arms: dict[str, dict[int, RunFolder]], seeds: list[int]) -> None:
    """Print tr Sigma of every arm against the base, and the prediction of the base's bins."""
    logs = {
        name: [noise_by_stage(read_noise(runs[seed], stages=STAGES)) for seed in seeds]
        for name, runs in arms.items()
    }
    heads = [f"{name}, {what}" for name in OTHERS for what in ("found", "predicted by adaLN")]
    print(f"| steps | tr Sigma, {BASE} | " + " | ".join(heads) + " |")
    print("|---" * (2 + len(heads)) + "|")
    for at in range(STAGES):
        noises = {
            name: np.array([stages[at].scale.s.value for stages in found])
            for name, found in logs.items()
        }
        cells = []
        for name in OTHERS:
            predicted = (one for stages in logs[BASE] for one in stages[at].reductions)
            values = [getattr(one, name).value for one in predicted if one.scope == ADALN]
            mean = float(np.mean(values))
            cells += [shown(paired(noises[name], noises[BASE])), f"{mean:.3f}"]
        step = logs[BASE][0][at].step
        print(f"| to {step} | {noises[BASE].mean():.4g} | " + " | ".join(cells) + " |")


def print_variance_reduction(measured: list[RunFolder]) -> None:
    """Print the prediction of the whole model's bins for every checkpoint, all runs together."""
    logs = [read_noise(run, stages=STAGES).stages for run in measured]
    print(
        "| step | " + " | ".join(f"{name}, predicted by the whole model" for name in OTHERS), end=""
    )
    print(" |")
    print("|---" * (1 + len(OTHERS)) + "|")
    for stages in zip(*logs, strict=True):
        parts = [next(one for one in stage.binned if one.scope == WHOLE) for stage in stages]
        found = predict_variance(pooled(parts))
        assert found is not None
        cells = [shown(getattr(found, name)) for name in OTHERS]
        print(f"| {stages[0].step} | " + " | ".join(cells) + " |")


def print_disagreement(measured: list[RunFolder]) -> None:
    """Print the ratio of the noise scale by adaLN to the whole model's, for the same images."""
    logs = [read_noise(run, stages=STAGES).stages for run in measured]
    print("| step | least | median | largest | bins determined in both |")
    print("|---|---|---|---|---|")
    for stages in zip(*logs, strict=True):
        whole, same = (
            pooled([next(one for one in stage.binned if one.scope == scope) for stage in stages])
            for scope in (WHOLE, SAME)
        )
        scales = [
            (noise_scale(a).b_simple, noise_scale(b).b_simple)
            for a, b in zip(same.bins, whole.bins, strict=True)
        ]
        ratios = [a.value / b.value for a, b in scales if a and b]
        summary = [min(ratios), float(np.median(ratios)), max(ratios)] if ratios else []
        cells = [f"{one:.2f}" for one in summary] or [""] * 3
        print(f"| {stages[0].step} | " + " | ".join(cells) + f" | {len(ratios)} of {len(scales)} |")


def pooled(parts: list[BinnedSums]) -> BinnedSums:
    """Return the samples of several runs as those of one."""
    return BinnedSums(
        scope=parts[0].scope,
        weights=parts[0].weights,
        bins=tuple(concatenate(same) for same in zip(*(one.bins for one in parts), strict=True)),
        total=concatenate([one.total for one in parts]),
    )


def print_bins(runs: list[RunFolder], scope: str) -> None:
    """Print B_simple of every bin by stage, from the samples of all runs together."""
    logs = [read_noise(run, stages=STAGES).stages for run in runs]
    print(f"| t, {scope} | " + " | ".join(f"to {stage.step}" for stage in logs[0]) + " |")
    print("|---" * (1 + len(logs[0])) + "|")
    groups = [
        pooled([next(one for one in stage.binned if one.scope == scope) for stage in stages])
        for stages in zip(*logs, strict=True)
    ]
    count = len(groups[0].bins)
    for k in range(count):
        cells = [scale_of(group.bins[k]) for group in groups]
        print(f"| {k / count:.1f}-{(k + 1) / count:.1f} | " + " | ".join(cells) + " |")
    if scope != SAME:
        whole = [
            scale_of(concatenate([one.whole for one in stages]))
            for stages in zip(*logs, strict=True)
        ]
        print("| all, whole model | " + " | ".join(whole) + " |")


def scale_of(sums: GramSums) -> str:
    """Format B_simple with its interval, or `undetermined`."""
    b = noise_scale(sums).b_simple
    return "undetermined" if b is None else f"{b.value:.3g} [{b.low:.3g}, {b.high:.3g}]"


def paired(above: Floats, below: Floats) -> Estimate:
    """Return the ratio of two arms, seed by seed, with its 95 % interval."""
    logs = np.log(above / below)
    half = float(stdtrit(len(logs) - 1, 0.975)) * logs.std(ddof=1) / np.sqrt(len(logs))
    middle = float(logs.mean())
    low, high = np.exp([middle - half, middle + half])
    return Estimate(value=float(np.exp(middle)), low=float(low), high=float(high))


def shown(ratio: Estimate) -> str:
    """Format a ratio, with its interval if there are enough samples for one."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3f}"
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
