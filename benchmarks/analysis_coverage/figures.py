"""Quality of samples, time to a target, the critical batch and the gradient noise scale."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.folders import SETUP_S, STEP_S, Run, one_after_another, write_run
from benchmarks.analysis_coverage.scenario import (
    TWO_SIDED,
    Case,
    Floats,
    Rng,
    Scenario,
    Truth,
    compared,
)

OTHER = ("optimizer.lr=0.0002",)
BLOCKS = 20
# The interval of a critical batch or of a noise scale tells nothing beyond a factor of two.
WIDEST = math.log(2)
# The loss that runs have to reach: half way through 1,000 steps.
GOAL = 0.36
FACTS = {
    "guidance": 1.5, "sampler": "euler", "features": "Inception", "features_sha256": "ab",
    "reference_second_moment": 23.2464,
}  # fmt: skip


def _fid_record(rng: Rng, true: float) -> dict[str, Any]:
    """Return an evaluation whose redraws scatter about the distance of this training by 1 %."""
    blocks = true * (1 + 0.01 * BLOCKS**0.5 * rng.standard_normal(BLOCKS))
    return {
        "fid": true + 1.5, "fid_inf": float(blocks.mean()), "fid_samples": 5000, "kid": 0.02,
        "fid_blocks": blocks.tolist(), "fid_facts": FACTS,
    }  # fmt: skip


def fid(
    name: str, counts: tuple[int, int], scatter: tuple[float, float], *, ratio: float = 1.0
) -> Scenario:
    """Return the scenario of two arms whose seeds scatter by `scatter`."""

    def make(rng: Rng, folder: Path) -> Case:
        runs, logs = {}, []
        for side, label in enumerate("ab"):
            own = scatter[side] * rng.standard_normal(counts[side])
            logs.append(own)
            for seed, log in enumerate(own):
                true = 20 * np.exp(log) * (ratio if side else 1.0)
                runs[f"{label}{seed}"] = Run(
                    seconds=processes.white(rng, 12).values,
                    seed=seed,
                    overrides=OTHER if side else (),
                    evaluations={11: _fid_record(rng, float(true))},
                )
        paths = one_after_another(folder, runs)
        observed = float(np.log(ratio) + logs[1].mean() - logs[0].mean())
        variance = sum((s**2 + 0.01**2) / k for k, s in zip(counts, scatter, strict=True))
        truth = compared(ratio, observed=observed, sd=variance**0.5)
        argv = ["compare", *map(str, paths.values())]
        return Case(argv=argv, truths={"": truth})

    return Scenario(topic="quality of samples", name=name, kind="fid", make=make, draws=100)


def _seconds_to_goal(offset: float, faster: float) -> float:
    """Return the seconds from a run's start until its loss without noise meets the goal."""
    steps = 20 * ((4 / (GOAL / (0.2 * offset) - 1)) ** 2 - 1)
    return SETUP_S + float(steps) * STEP_S / faster


def target(
    name: str, every: tuple[int, int], *, faster: float = 1.0, scatter: float = 0.01,
    seeds: int = 4, evaluated: int = 0, noise: float = 0.05,
) -> Scenario:  # fmt: skip
    """Return the scenario of two arms to a target, with a record each `every` steps.

    The second arm's steps are `faster`, and both have the same curve. Seeds scatter by `scatter`
    of the loss, steps by `noise`, of which a record has the mean. With `evaluated` the target is
    that of a validation loss, evaluated so often within the run.
    """

    def make(rng: Rng, folder: Path) -> Case:
        steps, runs, times = 1000, {}, np.zeros((2, seeds))
        for side, label in enumerate("ab"):
            for seed in range(seeds):
                n = steps // every[side]
                at = np.arange(1, n + 1) * float(every[side])
                offset = float(np.exp(scatter * rng.standard_normal()))
                curve: Floats = processes.falling_loss(np.asarray(at, float)) * offset
                loss = curve * np.exp(noise * rng.standard_normal(n) / every[side] ** 0.5)
                times[side, seed] = _seconds_to_goal(offset, faster if side else 1.0)
                gap = n // evaluated if evaluated else n
                evaluations = {
                    k: {"validation_loss": float(curve[k])} for k in range(gap - 1, n, gap)
                }
                runs[f"{label}{seed}"] = Run(
                    seconds=processes.white(rng, n).values / (faster if side else 1.0),
                    loss=loss,
                    every=every[side],
                    seed=seed,
                    overrides=("data.workers=3",) if side else (),
                    evaluations=evaluations if evaluated else {},
                )
        paths = one_after_another(folder, runs)
        logs = np.log(times)
        true = _seconds_to_goal(1.0, 1.0) / _seconds_to_goal(1.0, faster)
        sd = float(logs.std(axis=1, ddof=1).max()) * (2 / seeds) ** 0.5 if seeds > 1 else np.inf
        truth = compared(true, observed=float(logs[0].mean() - logs[1].mean()), sd=sd)
        goal = f"{'validation_loss' if evaluated else 'loss'}<={GOAL}"
        argv = ["target", "--target", goal, *map(str, paths.values())]
        return Case(argv=argv, truths={"": truth})

    return Scenario(topic="time to a target", name=name, kind="target", make=make, draws=40)


def critical_batch(
    name: str, apart: float, *, exponent: float = 1.0, seeds: int = 2, scatter: float = 0.03,
    note: str = "",
) -> Scenario:  # fmt: skip
    """Return the scenario of five batches, with evaluations so far `apart` at the target.

    The samples to the target are E (1 + (B / 200) ^ exponent).
    """

    def make(rng: Rng, folder: Path) -> Case:
        runs = {}
        critical = 200.0
        for batch in (32, 64, 128, 256, 512):
            for seed in range(seeds):
                whole = 100_000 * (1 + (batch / critical) ** exponent)
                needed = whole * np.exp(scatter * rng.standard_normal())
                every = max(1, round(apart * whole / batch))
                n = int(1.4 * whole / (every * batch))
                images = np.arange(1, n + 1) * float(every * batch)
                losses = 0.5 * (needed / images) ** 0.3
                runs[f"b{batch}_s{seed}"] = Run(
                    seconds=processes.white(rng, n).values * 0.1,
                    every=every,
                    batch=batch,
                    seed=seed,
                    evaluations={k: {"validation_loss": float(x)} for k, x in enumerate(losses)},
                )
        paths = one_after_another(folder, runs)
        determined = exponent == 1
        truth = Truth(value=critical, planted=determined, oracle=determined, widest=WIDEST)
        argv = ["target", "--critical-batch", "--target", "validation_loss<=0.5"]
        return Case(argv=[*argv, *map(str, paths.values())], truths={"": truth})

    return Scenario(
        topic="critical batch", name=name, kind="critical batch", make=make, draws=40, note=note
    )


def noise_scale(
    name: str, n: int, *, ratio: float, varying: float = 0.0, kept: float = 0.0
) -> Scenario:
    """Return the scenario of the noise scale of 4 microbatches of 16 images over `n` records.

    `ratio` is tr Sigma / |G|^2. The noise of a record varies by `varying` (lognormal), and stays
    like the one before by the autocorrelation `kept`.
    """

    def make(rng: Rng, folder: Path) -> Case:
        count, batch, size = 4, 16, 24
        log = varying * processes.correlated(rng, n, kept) - varying**2 / 2
        gradient = rng.standard_normal(size)
        gradient /= np.linalg.norm(gradient)
        extra: list[Mapping[str, Any]] = []
        for variance in ratio * np.exp(log):
            noise = rng.standard_normal((count, size)) * (variance / batch / size) ** 0.5
            each: Floats = gradient + noise
            fields = {
                "k": count, "b": batch, "steps": 1,
                "small": float((each**2).sum(axis=1).mean()),
                "big": float((each.mean(axis=0) ** 2).sum()),
            }  # fmt: skip
            extra.append({"gns": fields})
        run = Run(seconds=processes.white(rng, n).values, every=1, extra=extra)
        path = write_run(folder / "run", run)
        # The variance of |G|^2 from one record decides whether there is anything to tell.
        pairs = count * (count - 1)
        own = 4 * ratio / batch / size / count + 2 * (ratio / batch) ** 2 / size / pairs
        determined = TWO_SIDED * (own / n) ** 0.5 < 0.5
        truth = Truth(value=ratio, planted=determined, oracle=determined, widest=WIDEST)
        return Case(argv=["noise", str(path), "--stages", "1"], truths={"": truth})

    return Scenario(topic="gradient noise scale", name=name, kind="noise", make=make, draws=100)


def scenarios() -> list[Scenario]:
    """Return all scenarios of figures beside speed and loss."""
    found = [
        fid("equal, 2v5, scatter 3 against 30 %", (2, 5), (0.03, 0.3)),
        fid("equal, 5v2, scatter 3 against 30 %", (5, 2), (0.03, 0.3)),
        fid("equal, 3v3, scatter 1 against 10 %", (3, 3), (0.01, 0.1)),
        fid("equal, 3v3, scatter 3 %", (3, 3), (0.03, 0.03)),
        fid("equal, 5v5, scatter 3 %", (5, 5), (0.03, 0.03)),
        fid("equal, 1v1, scatter 3 %", (1, 1), (0.03, 0.03)),
        fid("15 % better, 4v4, scatter 3 %", (4, 4), (0.03, 0.03), ratio=0.85),
        fid("20 % worse, 5v5, scatter 5 %", (5, 5), (0.05, 0.05), ratio=1.2),
    ]
    found += [
        target("equal, training loss, each 10th step", (10, 10)),
        target("equal, training loss, each step against each 10th", (1, 10)),
        target("2x, training loss, each step against each 10th", (1, 10), faster=2.0),
        target("2x, training loss, each 10th step", (10, 10), faster=2.0),
        target("equal, 20 evaluations", (10, 10), evaluated=20),
        target("2x, 20 evaluations", (10, 10), evaluated=20, faster=2.0),
        target("equal, 1 seed", (10, 10), seeds=1),
    ]
    found += [
        critical_batch("evaluations 1 % apart", 0.01),
        critical_batch("evaluations 10 % apart", 0.1),
        critical_batch("evaluations 10 % apart, 1 seed", 0.1, seeds=1),
        critical_batch("evaluations 3 % apart, 4 seeds", 0.03, seeds=4),
        critical_batch(
            "true exponent .7", 0.01, exponent=0.7, note="the law does not hold: silence is right"
        ),
        critical_batch("true exponent .7, 4 seeds", 0.03, exponent=0.7, seeds=4),
    ]
    found += [
        noise_scale("white, 40 records", 40, ratio=50.0),
        noise_scale("white, 200 records", 200, ratio=200.0),
        noise_scale("lognormal .5, 100 records", 100, ratio=100.0, varying=0.5),
        noise_scale("AR(.8) of .3, 200 records", 200, ratio=100.0, varying=0.3, kept=0.8),
    ]
    return found
