"""Studies: speeds of cells, main effects of factors, and stops when a question is decided."""

import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.folders import Run, one_after_another, queue_again, write_study
from benchmarks.analysis_coverage.scenario import (
    Case,
    Floats,
    Rng,
    Scenario,
    Truth,
    compared,
    pooled,
)

RECORDS = 24
AXIS = "data.workers"
FIRST_LOOK = 3


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """How runs scatter: logs [cells, repeats] by `draw`, and the deviation that counts.

    With `nodes` each cell has a node of its own, and nodes scatter by so much. Of cells whose
    scatter `is_alike` the best test pools the variance.
    """

    draw: Callable[[Rng, int, int], Floats]
    sd: float
    nodes: float = 0.0
    is_alike: bool = False


def independent(sd: float, *, base: float = 1.0, nodes: float = 0.0) -> Scatter:
    """Return independent normal scatter, in the first cell `base` times as wide."""

    def draw(rng: Rng, cells: int, repeats: int) -> Floats:
        logs = sd * rng.standard_normal((cells, repeats))
        logs[0] *= base
        return logs

    return Scatter(draw=draw, sd=sd * base, nodes=nodes, is_alike=base == 1 and not nodes)


def own_drift(sd: float, rho: float) -> Scatter:
    """Return scatter that is autocorrelated from repeat to repeat, each cell on its own."""
    return Scatter(
        draw=lambda rng, cells, repeats: np.stack(
            [sd * processes.correlated(rng, repeats, rho) for _ in range(cells)]
        ),
        sd=sd,
    )


def shared_drift(sd: float, own: float) -> Scatter:
    """Return the scatter of a machine that drifts from round to round, the same for all cells."""
    return Scatter(
        draw=lambda rng, cells, repeats: (
            sd * np.cumsum(rng.standard_normal(repeats))
            + own * rng.standard_normal((cells, repeats))
        ),
        sd=own,
    )


def tailed(sd: float) -> Scatter:
    """Return scatter with the tails of Student's t with 3 degrees of freedom."""
    return Scatter(draw=lambda rng, *shape: sd * rng.standard_t(3, shape) / 3**0.5, sd=sd)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The logs of a study's runs [cells, repeats], and how much faster than the first cells are."""

    logs: Floats
    scatter: Scatter
    ratios: Mapping[int, float] = field(default_factory=dict)

    def write(self, rng: Rng, folder: Path, *, decided: bool = False) -> Path:
        """Write the study, whose runs ran in rounds over all cells in shuffled order."""
        cells, repeats = self.logs.shape
        runs, levels, number = {}, {}, {}
        for repeat, cell in ((r, c) for r in range(repeats) for c in rng.permutation(cells)):
            name = f"w{cell}_r{repeat}"
            slower = np.exp(self.logs[cell, repeat]) / self.ratios.get(cell, 1.0)
            runs[name] = Run(
                seconds=processes.white(rng, RECORDS, cv=0.01).values * slower,
                node=f"n{cell}" if self.scatter.nodes else "n1",
                overrides=(f"{AXIS}={cell}",),
            )
            levels[name], number[name] = {AXIS: int(cell)}, repeat + 1
        return write_study(
            folder / "study", runs, axes={AXIS: list(range(cells))}, levels=levels, repeat=number,
            decided=decided,
        )  # fmt: skip

    def truths(self, key: str) -> dict[str, Truth]:
        """Return the truth of each cell but the first; `key` makes the key of a cell's row."""
        cells, repeats = self.logs.shape
        sd, freedom = self.scatter.sd, 1e6
        if self.scatter.is_alike and repeats > 1:
            sd, freedom = pooled([*self.logs])
        spread = float(np.hypot(sd * repeats**-0.5, self.scatter.nodes)) * 2**0.5
        found = {}
        for cell in range(1, cells):
            ratio = self.ratios.get(cell, 1.0)
            observed = float(np.log(ratio) + self.logs[0].mean() - self.logs[cell].mean())
            found[key.format(cell)] = compared(
                ratio,
                observed=observed,
                sd=spread,
                freedom=freedom,
                comparisons=2 * (cells - 1),  # of losses, too
                of_these=float(np.exp(observed)) if repeats == 1 else None,
            )
        return found


def _drawn(rng: Rng, shape: tuple[int, int], scatter: Scatter, ratios: dict[int, float]) -> Planted:
    logs = scatter.draw(rng, *shape) + scatter.nodes * rng.standard_normal((shape[0], 1))
    return Planted(logs=logs, scatter=scatter, ratios=ratios)


def cells(
    name: str, shape: tuple[int, int], scatter: Scatter, *, draws: int = 40, **ratios: float
) -> Scenario:
    """Return the scenario of a study of `shape` (cells, repeats); `c5=1.2`: cell 5 is faster."""
    told = {int(cell[1:]): ratio for cell, ratio in ratios.items()}

    def make(rng: Rng, folder: Path) -> Case:
        planted = _drawn(rng, shape, scatter, told)
        path = planted.write(rng, folder)
        return Case(argv=["cells", str(path)], truths=planted.truths("|{}|"))

    return Scenario(topic="speed of cells", name=name, kind="cells speed", make=make, draws=draws)


def decided(
    name: str, shape: tuple[int, int], scatter: Scatter, *, ratio: float = 1.0, note: str = ""
) -> Scenario:
    """Return the scenario of a study with `stop: decided`, looked at after each repeat from 3 on.

    All cells but the first are `ratio` times as fast. A false verdict at any look counts; what was
    found and covered is that of the last look.
    """

    def make(rng: Rng, folder: Path) -> Case:
        planted = _drawn(rng, shape, scatter, dict.fromkeys(range(1, shape[0]), ratio))
        path = planted.write(rng, folder, decided=True)
        later: list[list[Path]] = [[] for _ in range(shape[1])]
        for run in sorted((path / "cells").iterdir()):
            repeat = int(run.name.split("_r")[1])
            if repeat >= FIRST_LOOK:
                shutil.copytree(run, folder / "kept" / run.name)
                queue_again(run)
                later[repeat].append(run)

        def look(repeat: int) -> None:
            for run in later[repeat]:
                shutil.rmtree(run)
                shutil.move(folder / "kept" / run.name, run)

        looks = tuple(partial(look, repeat) for repeat in range(FIRST_LOOK - 1, shape[1]))
        argv = ["cells", "--decided", str(path)]
        return Case(argv=argv, truths=planted.truths("|w{}_r"), looks=looks)

    return Scenario(
        topic="decided studies", name=name, kind="decided rate", make=make, draws=40, note=note
    )


def ablation(
    name: str, sd: float, *, repeats: int = 1, effect: float = 1.0, draws: int = 50
) -> Scenario:
    """Return the scenario of 4 x 2 x 2 cells that scatter by `sd`; checkpointing has an effect."""
    factors = {
        "data.workers": (0, 1, 2, 3),
        "activation_checkpointing.mode": ("none", "full"),
        "model.qk_norm": ("true", "false"),
    }

    def make(rng: Rng, folder: Path) -> Case:
        runs, observed = {}, float(np.log(effect))
        for number, levels in enumerate(itertools.product(*factors.values())):
            is_full = levels[1] == "full"
            for repeat in range(repeats):
                log = sd * rng.standard_normal()
                observed += (-log if is_full else log) / (8 * repeats)
                slower = np.exp(log) / (effect if is_full else 1.0)
                runs[f"c{number}_r{repeat}"] = Run(
                    seconds=processes.white(rng, RECORDS, cv=0.01).values * slower,
                    overrides=tuple(f"{k}={one}" for k, one in zip(factors, levels, strict=True)),
                    seed=repeat,
                )
        names = rng.permutation([*runs]).tolist()
        one_after_another(folder / "cells", {name: runs[name] for name in names})
        spread = sd * (2 / (8 * repeats)) ** 0.5
        truths = {
            "": Truth(value=1.0),
            "checkpointing": compared(effect, observed=observed, sd=spread, comparisons=5),
        }
        return Case(argv=["cells", "--ablation", str(folder / "cells")], truths=truths)

    return Scenario(topic="ablation", name=name, kind="effects", make=make, draws=draws)


def scenarios() -> list[Scenario]:
    """Return all scenarios of studies."""
    unseen = "six repeats do not show their autocorrelation; only turns or other nodes would"
    return [
        cells("equal, 8 x 3, scatter 1 %", (8, 3), independent(0.01), draws=50),
        cells("equal, 8 x 3, scatter 3 %", (8, 3), independent(0.03), draws=50),
        cells("equal, 8 x 5, scatter 1 %", (8, 5), independent(0.01)),
        cells("equal, 8 x 3, runs of t3", (8, 3), tailed(0.02)),
        cells("equal, 4 x 3, the first noisier", (4, 3), independent(0.003, base=10)),
        cells("equal, 4 x 3, machine drifts", (4, 3), shared_drift(0.03, 0.005)),
        cells("one of 4 1.05x, machine drifts", (4, 5), shared_drift(0.03, 0.005), c2=1.05),
        cells("equal, 4 x 1, scatter 1 %", (4, 1), independent(0.01), draws=50),
        cells("equal, 4 x 3, a node each", (4, 3), independent(0.003, nodes=0.02)),
        cells("one of 8 1.036x, 3 repeats, scatter 1 %", (8, 3), independent(0.01), c5=1.036),
        cells("one of 8 1.2x, 3 repeats, scatter 1 %", (8, 3), independent(0.01), c5=1.2),
        cells("one of 4 1.1x, 5 repeats, scatter 1 %", (4, 5), independent(0.01), c2=1.1),
        decided("equal, 3 x 6, scatter 1 %", (3, 6), independent(0.01)),
        decided("1.1x, 2 x 6, scatter 1 %", (2, 6), independent(0.01), ratio=1.1),
        decided("1.05x, 2 x 6, machine drifts", (2, 6), shared_drift(0.05, 0.005), ratio=1.05),
        decided("equal, 2 x 6, machine drifts", (2, 6), shared_drift(0.05, 0.005)),
        decided("equal, 2 x 6, AR(.5) by cell", (2, 6), own_drift(0.01, 0.5), note=unseen),
        decided("equal, 2 x 6, each cell on a node", (2, 6), independent(0.003, nodes=0.02)),
        decided("equal, 2 x 6, base 10x noisier", (2, 6), independent(0.003, base=10)),
        decided("equal, 2 x 6, runs of t3", (2, 6), tailed(0.02)),
        ablation("no effect, 4 x 2 x 2, scatter 1 %", 0.01),
        ablation("no effect, 4 x 2 x 2, scatter 5 %", 0.05),
        ablation("no effect, 4 x 2 x 2 x 3 seeds", 0.02, repeats=3, draws=24),
        ablation("one factor 1.05x, scatter 1 %", 0.01, effect=1.05),
        ablation("one factor 1.1x, scatter 2 %", 0.02, effect=1.1),
    ]
