"""Scenarios whose own parameters are drawn by the seed, so that no code is fitted to them."""

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.losses import Recipe, level
from benchmarks.analysis_coverage.losses import cells as loss_cells
from benchmarks.analysis_coverage.losses import pair as loss_pair
from benchmarks.analysis_coverage.processes import of
from benchmarks.analysis_coverage.rates import of_run
from benchmarks.analysis_coverage.scenario import Scenario
from benchmarks.analysis_coverage.speedups import arms, pair, rounds
from benchmarks.analysis_coverage.studies import cells, independent


def scenarios(seed: int) -> list[Scenario]:
    """Return two scenarios of each topic, with parameters that depend on `seed`."""
    rng = np.random.default_rng([seed, 7])
    found = [one for turn in range(2) for one in _turn(rng, f"draw {turn + 1}")]
    return [Scenario(**(vars(one) | {"topic": "parameters by the seed"})) for one in found]


def _turn(rng: np.random.Generator, turn: str) -> list[Scenario]:
    n, cv = int(rng.integers(40, 400)), float(rng.uniform(0.005, 0.06))
    rho, stay = float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.3, 0.9))
    scatter = float(np.exp(rng.uniform(np.log(0.002), np.log(0.06))))
    other = scatter * float(rng.uniform(0.1, 10))
    nodes = float(rng.uniform(0.005, 0.08))
    a, b = (int(k) for k in rng.integers(2, 7, 2))
    share, period = float(rng.uniform(0.1, 0.9)), float(rng.uniform(5, 60))
    ratio = float(rng.choice([1.0, 1 + rng.uniform(0.05, 0.3)]))
    offset = float(rng.uniform(0.003, 0.05))
    equal = f"{a}v{b}, scatter {scatter:.2%} against {other:.2%}"
    p = processes
    return [
        of_run(f"{turn}: AR({rho:.2f}), {n}, cv {cv:.1%}", of(p.autoregressive, n, rho=rho, cv=cv)),
        of_run(
            f"{turn}: two speeds, {n}, {share:.0%} slow, stay {stay:.2f}",
            of(p.two_speeds, n, stay=stay, share=share),
        ),
        of_run(f"{turn}: cyclic, {n}, {period:.0f} records", of(p.cyclic, n, period=period)),
        pair(
            f"{turn}: {ratio:.2f}x, AR({rho:.2f}), scatter {scatter:.2%}",
            *2 * [of(p.autoregressive, n, rho=rho, cv=cv)],
            ratio=ratio,
            scatter=scatter,
        ),
        arms(f"{turn}: equal, {equal}", (a, b), (scatter, other)),
        arms(
            f"{turn}: {ratio:.2f}x, {a}v{a}, nodes differ by {nodes:.1%}",
            (a, a),
            (scatter, scatter),
            nodes=nodes,
            ratio=ratio,
            note="the interval allows 5 % for each node" if nodes > 0.05 else "",
        ),
        rounds(f"{turn}: {ratio:.2f}x, {b + 2} rounds", b + 2, ratio=ratio, scatter=scatter),
        loss_pair(f"{turn}: loss equal, offset {offset:.1%}", Recipe(offset=offset, noise=cv)),
        loss_cells(
            f"{turn}: loss {1 / ratio:.2f}x, {b + 1} seeds, offset {offset:.1%}",
            Recipe(offset=offset, noise=cv),
            b + 1,
            effects={1: level(1 / ratio)},
        ),
        cells(f"{turn}: equal, {a + 2} x {b + 1}", (a + 2, b + 1), independent(scatter)),
    ]
