"""Studies: speeds of cells, main effects of factors, and stops when a question is decided."""

import itertools
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.folders import START, Run, queue_again, write_run, write_study
from benchmarks.analysis_coverage.scenario import Case, Floats, Rng, Scenario, Truth, finds

RECORDS = 24
AXIS = "data.workers"
Scatter = Callable[[Rng, int, int], Floats]


def independent(sd: float, *, base: float = 1.0) -> Scatter:
    """Return independent logs [cells, repeats], in the first cell `base` times as wide."""

    def draw(rng: Rng, cells: int, repeats: int) -> Floats:
        logs = sd * rng.standard_normal((cells, repeats))
        logs[0] *= base
        return logs

    return draw


def own_drift(sd: float, rho: float) -> Scatter:
    """Return logs whose repeats are autocorrelated, each cell on its own."""
    return lambda rng, cells, repeats: (
        sd * np.stack([processes.correlated(rng, repeats, rho) for _ in range(cells)])
    )


def shared_drift(sd: float, own: float) -> Scatter:
    """Return logs of a machine that drifts from round to round, the same for all cells."""
    return lambda rng, cells, repeats: (
        sd * np.cumsum(rng.standard_normal(repeats))[None, :]
        + own * rng.standard_normal((cells, repeats))
    )


def tailed(sd: float) -> Scatter:
    """Return logs with the tails of Student's t with 3 degrees of freedom."""
    return lambda rng, cells, repeats: sd * rng.standard_t(3, (cells, repeats)) / 3**0.5


def _runs(
    rng: Rng, logs: Floats, ratios: Mapping[int, float], nodes: Floats | None
) -> dict[str, Run]:
    """Return the runs by name, in rounds over all cells in shuffled order."""
    cells, repeats = logs.shape
    runs = {}
    for repeat in range(repeats):
        for cell in rng.permutation(cells):
            slower = np.exp(logs[cell, repeat] + (nodes[cell] if nodes is not None else 0.0))
            seconds = processes.white(rng, RECORDS, cv=0.01).values * slower / ratios.get(cell, 1.0)
            runs[f"w{cell}_r{repeat}"] = Run(
                seconds=seconds,
                node=f"n{cell}" if nodes is not None else "n1",
                overrides=(f"{AXIS}={cell}",),
            )
    return runs


def _write(folder: Path, runs: Mapping[str, Run], shape: tuple[int, ...], decided: bool) -> Path:
    names = {name: tuple(int(part[1:]) for part in name.split("_")) for name in runs}
    return write_study(
        folder / "study",
        runs,
        axes={AXIS: list(range(shape[0]))},
        levels={name: {AXIS: cell} for name, (cell, _) in names.items()},
        repeat={name: repeat + 1 for name, (_, repeat) in names.items()},
        decided=decided,
    )


def cells(
    name: str,
    shape: tuple[int, int],
    scatter: Scatter,
    sd: float,
    *,
    ratios: Mapping[int, float] | None = None,
    nodes: float = 0.0,
    draws: int = 40,
) -> Scenario:
    """Return the scenario of a study of `shape` (cells, repeats), whose runs scatter by `sd`.

    `ratios` are the speeds of cells over the first one's. With `nodes` each cell has a node of its
    own, and nodes scatter by so much.
    """
    told = ratios or {}

    def make(rng: Rng, folder: Path) -> Case:
        logs = scatter(rng, *shape)
        apart = nodes * rng.standard_normal(shape[0]) if nodes else None
        path = _write(folder, _runs(rng, logs, told, apart), shape, decided=False)
        means = logs.mean(axis=1) + (0.0 if apart is None else apart)
        spread = float(np.hypot(sd * (2 / shape[1]) ** 0.5, 2**0.5 * nodes))
        truths = {}
        for cell in range(1, shape[0]):
            ratio = told.get(cell, 1.0)
            observed = float(np.log(ratio) + means[0] - means[cell])
            oracle = ratio != 1 and finds(observed, spread, comparisons=shape[0] - 1)
            truths[f"|{cell}|"] = Truth(value=ratio, planted=ratio != 1, oracle=oracle)
        return Case(argv=["cells", str(path)], truths=truths)

    return Scenario(topic="speed of cells", name=name, kind="cells speed", make=make, draws=draws)


def decided(
    name: str,
    shape: tuple[int, int],
    scatter: Scatter,
    sd: float,
    *,
    ratio: float = 1.0,
    nodes: float = 0.0,
    draws: int = 40,
    note: str = "",
) -> Scenario:
    """Return the scenario of a study with `stop: decided`, looked at after each repeat from 3 on.

    All cells but the first are `ratio` times as fast. A false verdict at any look counts; what was
    found and covered is that of the last look.
    """

    def make(rng: Rng, folder: Path) -> Case:
        logs = scatter(rng, *shape)
        apart = nodes * rng.standard_normal(shape[0]) if nodes else None
        others = dict.fromkeys(range(1, shape[0]), ratio)
        runs = _runs(rng, logs, others, apart)
        path = _write(folder, runs, shape, decided=True)
        done = {name: path / "cells" / name for name in runs}
        kept = folder / "kept"
        kept.mkdir()
        for name, run in done.items():
            if int(name.split("_r")[1]) >= 3:
                shutil.copytree(run, kept / name)
                queue_again(run)

        def look(repeat: int) -> None:
            for name, run in done.items():
                if repeat >= 3 and int(name.split("_r")[1]) == repeat:
                    shutil.rmtree(run)
                    shutil.move(kept / name, run)

        spread = float(np.hypot(sd * (2 / shape[1]) ** 0.5, 2**0.5 * nodes))
        truths = {}
        for cell in range(1, shape[0]):
            means = logs.mean(axis=1) + (0.0 if apart is None else apart)
            observed = float(np.log(ratio) + means[0] - means[cell])
            oracle = ratio != 1 and finds(observed, spread, comparisons=shape[0] - 1)
            truths[f"|w{cell}_r"] = Truth(value=ratio, planted=ratio != 1, oracle=oracle)
        looks = tuple(partial(look, repeat) for repeat in range(2, shape[1]))
        return Case(argv=["cells", "--decided", str(path)], truths=truths, looks=looks)

    return Scenario(
        topic="decided studies", name=name, kind="decided rate", make=make, draws=draws, note=note
    )


def ablation(
    name: str, sd: float, *, repeats: int = 1, effect: float = 1.0, draws: int = 50
) -> Scenario:
    """Return the scenario of 4 x 2 x 2 cells that scatter by `sd`; checkpointing has an effect."""

    def make(rng: Rng, folder: Path) -> Case:
        factors = {
            "data.workers": (0, 1, 2, 3),
            "activation_checkpointing.mode": ("none", "full"),
            "model.qk_norm": ("true", "false"),
        }
        total = {"none": 0.0, "full": 0.0}
        now = START
        for number, levels in enumerate(itertools.product(*factors.values())):
            overrides = tuple(f"{key}={one}" for key, one in zip(factors, levels, strict=True))
            for repeat in range(repeats):
                log = sd * rng.standard_normal()
                total[str(levels[1])] += log / (8 * repeats)
                slower = np.exp(log) / (effect if levels[1] == "full" else 1.0)
                run = Run(
                    seconds=processes.white(rng, RECORDS, cv=0.01).values * slower,
                    overrides=overrides,
                    starts=(now,),
                    seed=repeat,
                )
                write_run(folder / "cells" / f"c{number}_r{repeat}", run)
                now += run.wall_s + 60
        observed = float(np.log(effect) + total["none"] - total["full"])
        oracle = effect != 1 and finds(observed, sd * (2 / (8 * repeats)) ** 0.5, comparisons=5)
        truths = {
            "": Truth(value=1.0),
            "activation_checkpointing": Truth(value=effect, planted=effect != 1, oracle=oracle),
        }
        return Case(argv=["cells", "--ablation", str(folder / "cells")], truths=truths)

    return Scenario(topic="ablation", name=name, kind="effects", make=make, draws=draws)


def scenarios() -> list[Scenario]:
    """Return all scenarios of studies."""
    found = [
        cells("equal, 8 x 3, scatter 1 %", (8, 3), independent(0.01), 0.01, draws=50),
        cells("equal, 8 x 3, scatter 3 %", (8, 3), independent(0.03), 0.03, draws=50),
        cells("equal, 8 x 5, scatter 1 %", (8, 5), independent(0.01), 0.01),
        cells("equal, 8 x 3, runs of t3", (8, 3), tailed(0.02), 0.02),
        cells("equal, 4 x 3, the first noisier", (4, 3), independent(0.003, base=10), 0.03),
        cells("equal, 4 x 3, machine drifts", (4, 3), shared_drift(0.03, 0.005), 0.005),
        cells("equal, 4 x 1, scatter 1 %", (4, 1), independent(0.01), 0.01, draws=50),
        cells("equal, 4 x 3, a node each", (4, 3), independent(0.003), 0.003, nodes=0.02),
        cells(
            "one of 8 1.2x, 3 repeats, scatter 1 %",
            (8, 3),
            independent(0.01),
            0.01,
            ratios={5: 1.2},
        ),
        cells(
            "one of 4 1.1x, 5 repeats, scatter 1 %",
            (4, 5),
            independent(0.01),
            0.01,
            ratios={2: 1.1},
        ),
    ]
    found += [
        decided("equal, 3 x 6, scatter 1 %", (3, 6), independent(0.01), 0.01),
        decided("1.1x, 2 x 6, scatter 1 %", (2, 6), independent(0.01), 0.01, ratio=1.1),
        decided("1.05x, 2 x 6, machine drifts", (2, 6), shared_drift(0.05, 0.005), 0.005,
                ratio=1.05),
        decided("equal, 2 x 6, machine drifts", (2, 6), shared_drift(0.05, 0.005), 0.005),
        decided(
            "equal, 2 x 6, repeats AR(.5) by cell", (2, 6), own_drift(0.01, 0.5), 0.01,
            note="six repeats do not show their autocorrelation; only turns or other nodes would",
        ),
        decided("equal, 2 x 6, each cell on a node", (2, 6), independent(0.003), 0.003, nodes=0.02),
        decided("equal, 2 x 6, base 10x noisier", (2, 6), independent(0.003, base=10), 0.03),
        decided("equal, 2 x 6, runs of t3", (2, 6), tailed(0.02), 0.02),
    ]  # fmt: skip
    found += [
        ablation("no effect, 4 x 2 x 2, scatter 1 %", 0.01),
        ablation("no effect, 4 x 2 x 2, scatter 5 %", 0.05),
        ablation("no effect, 4 x 2 x 2 x 3 seeds", 0.02, repeats=3, draws=24),
        ablation("one factor 1.05x, scatter 1 %", 0.01, effect=1.05),
        ablation("one factor 1.1x, scatter 2 %", 0.02, effect=1.1),
    ]
    return found
