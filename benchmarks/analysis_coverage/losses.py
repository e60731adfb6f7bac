"""Losses of runs and of cells: equal recipes that look unlike, and unlike ones that look equal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.folders import Run, one_after_another, write_study
from benchmarks.analysis_coverage.foreign import Printed, write_log
from benchmarks.analysis_coverage.scenario import Case, Floats, Rng, Scenario, compared

N, EVERY = 200, 10
OTHER = ("optimizer.lr=0.0002",)
Effect = Callable[[Floats], Floats]


def level(ratio: float) -> Effect:
    """Return an effect that multiplies the loss by `ratio` throughout."""
    return lambda share: np.full(len(share), ratio)


def crossing(early: float, late: float) -> Effect:
    """Return an effect of `early` in the first half of the run and of `late` in the second."""
    return lambda share: np.where(share < 0.5, early, late)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How losses scatter: between seeds by `offset`, within a run, and as they are logged.

    `noise` is that of a record, `rho` its autocorrelation, `wander` the deviation of a slow change,
    `decay` that of the average that is logged. With `tails` the noise has those of Student's t.
    """

    offset: float = 0.0
    noise: float = 0.02
    rho: float = 0.0
    wander: float = 0.0
    decay: float = 0.0
    tails: bool = False
    records: int = N

    def draw(self, rng: Rng, effect: Effect) -> tuple[Floats, Floats]:
        """Return the losses of a run [n] as logged, and the logs of their true level [n]."""
        n = self.records
        share = np.arange(n) / n
        true = np.log(effect(share)) + self.offset * rng.standard_normal()
        if self.wander:
            true = true + processes.wandering(rng, n, sd=self.wander)
        if self.tails:
            noise = self.noise * np.clip(rng.standard_t(3, n), -12, 12)
        else:
            noise = self.noise * processes.correlated(rng, n, self.rho)
        steps = np.arange(1.0, n + 1) * EVERY
        loss = processes.falling_loss(steps) * np.exp(true + noise)
        return (processes.averaged(loss, decay=self.decay) if self.decay else loss), true

    @property
    def last(self) -> int:
        """The records in the last tenth of a run."""
        return self.records // 10

    @property
    def sd(self) -> float:
        """The deviation of the mean log over the last tenth of a run, about its recipe's."""
        tau = (1 + self.rho) / (1 - self.rho)
        own = self.noise * (tau / self.last) ** 0.5
        return float(np.hypot(np.hypot(self.offset, self.wander), own))


def pair(
    name: str,
    recipe: Recipe,
    effect: Effect | None = None,
    *,
    form: str | None = None,
    identical: bool = False,
    named: bool = False,
    draws: int = 100,
    note: str = "",
) -> Scenario:
    """Return the scenario of one run a side, as run folders or as logs of one form.

    Without an effect the recipes are equal and the seeds differ. With `identical` it is one run
    twice, but for rounding: that must be called the same. With `named` another learning rate, which
    has no effect, tells equal recipes apart.
    """
    told = effect or level(1.0)

    def make(rng: Rng, folder: Path) -> Case:
        losses, levels = zip(*(recipe.draw(rng, one) for one in (level(1.0), told)), strict=True)
        if identical:
            losses = (losses[0], losses[0] * np.exp(1e-5 * rng.standard_normal(recipe.records)))
            levels = (levels[0], levels[0])
        these = float((levels[1] - levels[0])[-recipe.last :].mean())
        value = float(told(np.array([0.999]))[0])
        differs = value != 1
        truth = compared(
            value, observed=these, sd=2**0.5 * recipe.sd, of_these=float(np.exp(these))
        )
        truth = replace(truth, strict=True)
        if identical:
            truth = replace(truth, planted=True, oracle=True)
        seconds = [processes.white(rng, recipe.records).values for _ in losses]
        if form:
            paths = [
                str(write_log(folder / label, form, Printed.of(s, every=EVERY, step_s=0.1, loss=x)))
                for label, s, x in zip("ab", seconds, losses, strict=True)
            ]
        else:
            runs = {
                label: Run(
                    seconds=seconds[side],
                    loss=losses[side],
                    seed=0 if identical else side,
                    overrides=OTHER if side and (differs or named) else (),
                )
                for side, label in enumerate("ab")
            }
            paths = [str(path) for path in one_after_another(folder, runs).values()]
        return Case(argv=["loss", *paths], truths={"": truth})

    topic = "loss of logs, one run each" if form else "loss, one run each"
    return Scenario(topic=topic, name=name, kind="loss", make=make, draws=draws, note=note)


def cells(
    name: str,
    recipe: Recipe,
    seeds: int,
    *,
    number: int = 2,
    effects: Mapping[int, Effect] | None = None,
    draws: int = 50,
) -> Scenario:
    """Return the scenario of a study of `number` cells over seeds; `effects` are those of cells."""
    told = effects or {}

    def make(rng: Rng, folder: Path) -> Case:
        runs, levels, repeat = {}, {}, {}
        means = np.zeros((number, seeds))
        for seed in range(seeds):
            for cell in range(number):
                loss, true = recipe.draw(rng, told.get(cell, level(1.0)))
                means[cell, seed] = true[-recipe.last :].mean()
                own = {"optimizer.warmup_steps": 100 + cell, "seed": seed}
                runs[f"w{cell}_s{seed}"] = Run(
                    seconds=processes.white(rng, N).values,
                    loss=loss,
                    seed=seed,
                    overrides=(f"optimizer.warmup_steps={100 + cell}",),
                )
                levels[f"w{cell}_s{seed}"], repeat[f"w{cell}_s{seed}"] = own, 1
        axes = {
            "optimizer.warmup_steps": [100 + cell for cell in range(number)],
            "seed": list(range(seeds)),
        }
        path = write_study(folder / "study", runs, axes=axes, levels=levels, repeat=repeat)
        truths = {}
        for cell in range(1, number):
            value = float(told.get(cell, level(1.0))(np.array([0.999]))[0])
            observed = float((means[cell] - means[0]).mean())
            sd = recipe.sd * (2 / seeds) ** 0.5
            truths[f"|{100 + cell}|"] = compared(
                value,
                observed=observed,
                sd=sd,
                comparisons=number - 1,
                of_these=float(np.exp(observed)) if seeds == 1 else None,
            )
        return Case(argv=["cells", str(path)], truths=truths)

    return Scenario(topic="loss of cells", name=name, kind="cells loss", make=make, draws=draws)


def scenarios() -> list[Scenario]:
    """Return all scenarios of losses."""
    found = [
        pair("equal, no offsets", Recipe()),
        pair("one run twice, but for rounding", Recipe(), identical=True),
        *(pair(f"equal, seeds offset by {s:.0%}", Recipe(offset=s)) for s in (0.01, 0.02, 0.03)),
        *(
            pair(f"another rate without effect, offset {s:.0%}", Recipe(offset=s), named=True)
            for s in (0.0, 0.01, 0.02, 0.03)
        ),
        pair("another rate without effect, EMA of .98", Recipe(decay=0.98, noise=0.1), named=True),
        pair("equal, wandering by 1 %", Recipe(wander=0.01)),
        pair("equal, wandering by 2 %, offset 1 %", Recipe(wander=0.02, offset=0.01)),
        pair("equal, noise AR(.5)", Recipe(rho=0.5)),
        pair("equal, noise AR(.9)", Recipe(rho=0.9)),
        pair("equal, noise of t3", Recipe(tails=True, noise=0.03)),
        pair("equal, noise 10 %", Recipe(noise=0.1)),
        pair("equal, logged as an EMA of .9", Recipe(decay=0.9, noise=0.1)),
        pair("equal, logged as an EMA of .98", Recipe(decay=0.98, noise=0.1)),
        pair("10 % better, then 10 % worse", Recipe(), crossing(0.9, 1.1)),
        pair(
            "5 % worse, then 5 % better",
            Recipe(),
            crossing(1.05, 0.95),
            note="two seeds of one recipe may end as far apart",
        ),
        pair("20 % better, offset 1 %", Recipe(offset=0.01), level(0.8)),
        pair("14 % better, 30 records", Recipe(records=30), level(0.86)),
        pair("30 % worse, offset 2 %", Recipe(offset=0.02), level(1.3)),
    ]
    for form in ("DiT text, whole seconds", "JSON lines", "CSV", "TensorBoard"):
        found.append(pair(f"equal, offset 1 %, {form}", Recipe(offset=0.01), form=form, draws=60))
    found += [
        pair("20 % better, JSON lines", Recipe(offset=0.01), level(0.8), form="JSON lines"),
        pair("crossing, CSV", Recipe(), crossing(0.9, 1.1), form="CSV"),
    ]
    found += [
        cells("equal, 3 seeds, offset 1 %", Recipe(offset=0.01), 3),
        cells("equal, 5 seeds, offset 2 %", Recipe(offset=0.02), 5),
        cells("equal, 8 x 3, offset 1 %", Recipe(offset=0.01), 3, number=8, draws=24),
        cells("crossing, 3 seeds", Recipe(), 3, effects={1: crossing(0.9, 1.1)}),
        cells("crossing, 5 seeds", Recipe(), 5, effects={1: crossing(0.9, 1.1)}),
        cells("10 % better, 3 seeds, offset 1 %", Recipe(offset=0.01), 3, effects={1: level(0.9)}),
        cells("5 % better, 5 seeds, offset 1 %", Recipe(offset=0.01), 5, effects={1: level(0.95)}),
        cells(
            "one of 4 cells 20 % worse, 3 seeds",
            Recipe(offset=0.01),
            3,
            number=4,
            effects={2: level(1.2)},
            draws=40,
        ),
        cells("equal, 3 seeds, wandering", Recipe(offset=0.01, wander=0.01), 3),
        cells("equal, 1 seed, offset 2 %", Recipe(offset=0.02), 1),
    ]
    return found
