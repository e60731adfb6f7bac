"""Whether drawing t by strata or by variance pays: the tables of docs/studies/gradient-noise.md.

    python -m benchmarks.timestep_samplers STUDY

STUDY is the folder of configs/studies/digits-timesteps.yaml. Arms are compared seed by seed with
the one that draws every t alone; intervals are Student's, of the logs of these ratios. Written as
Markdown, the same bytes for the same runs.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from analysis.gns_table import told
from analysis.noise import Estimate, Floats
from analysis.read.gradient import ADALN, WHOLE, read_noise
from configs.records import valid
from configs.run import RunFolder, find_runs
from configs.study_folder import is_study_folder

BASE, OTHERS = "uniform", ("stratified", "variance")
Curve = dict[int, float]


def main(arguments: list[str]) -> int:
    """Print the tables; 2 where the folder is no such study."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("study", type=Path)
    study = options.parse_args(arguments).study
    if not is_study_folder(study):
        print(f"{study}: not a study's folder", file=sys.stderr)
        return 2
    arms = whole_seeds(study)
    seeds = sorted(arms[BASE])
    print(f"{len(seeds)} seeds: {', '.join(map(str, seeds))}.\n")
    print_arrivals(arms, seeds)
    print()
    print_variance(arms, seeds)
    return 0


def whole_seeds(study: Path) -> dict[str, dict[int, RunFolder]]:
    """The runs of every arm by seed, of the seeds that all arms have done."""
    arms: dict[str, dict[int, RunFolder]] = {name: {} for name in (BASE, *OTHERS)}
    for run in find_runs(study / "cells"):
        tree = run.asked()
        if any(record.get("event") == "done" for record in run.records()):
            arms[tree["objective"]["sampler"]][tree["seed"]] = run
    common = set.intersection(*(set(runs) for runs in arms.values()))
    return {name: {seed: runs[seed] for seed in sorted(common)} for name, runs in arms.items()}


def curve(run: RunFolder) -> Curve:
    """Validation loss by images."""
    told_here = [r for r in valid(run.records()) if "validation_loss" in r]
    return {r["images"]: r["validation_loss"] for r in sorted(told_here, key=lambda r: r["step"])}


def images_to(found: Curve, target: float) -> float:
    """Images at which a curve first crosses `target`, by a straight line between evaluations."""
    images, losses = np.array(list(found), float), np.array(list(found.values()))
    at = int(np.argmax(losses <= target))
    if losses[at] > target:
        raise ValueError(f"a run ends above {target:.4g}")
    if at == 0:
        return float(images[0])
    part = (losses[at - 1] - target) / (losses[at - 1] - losses[at])
    return float(images[at - 1] + part * (images[at] - images[at - 1]))


def print_arrivals(arms: dict[str, dict[int, RunFolder]], seeds: list[int]) -> None:
    """Images to two losses, and the last loss, of every arm against the base."""
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
    """tr Sigma while training by arm against the base, and what the base's bins predict."""
    logs = {
        name: [told(read_noise(runs[seed], stages=4)) for seed in seeds]
        for name, runs in arms.items()
    }
    print("| steps | tr Sigma | " + " | ".join(f"{name}, found" for name in OTHERS), end="")
    print(" | " + " | ".join(f"{name}, {s}" for name in OTHERS for s in (ADALN, WHOLE)) + " |")
    print("|---" * (2 + 3 * len(OTHERS)) + "|")
    for at in range(4):
        noises = {
            name: np.array([stages[at].scale.s.value for stages in found])
            for name, found in logs.items()
        }
        cells = [shown(paired(noises[name], noises[BASE])) for name in OTHERS]
        saved = [stages[at].savings for stages in logs[BASE]]
        for name in OTHERS:
            for scope in (ADALN, WHOLE):
                values = [getattr(one[scope], name).value for one in saved if scope in one]
                cells.append(f"{np.mean(values):.3f}" if values else "")
        step = logs[BASE][0][at].step
        print(f"| to {step} | {noises[BASE].mean():.4g} | " + " | ".join(cells) + " |")


def paired(above: Floats, below: Floats) -> Estimate:
    """The ratio of two arms, seed by seed, and its 95 % interval."""
    logs = np.log(above / below)
    half = float(stdtrit(len(logs) - 1, 0.975)) * logs.std(ddof=1) / np.sqrt(len(logs))
    middle = float(logs.mean())
    low, high = np.exp([middle - half, middle + half])
    return Estimate(value=float(np.exp(middle)), low=float(low), high=float(high))


def shown(ratio: Estimate) -> str:
    """A ratio with its interval."""
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
