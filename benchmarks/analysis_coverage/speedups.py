"""Speedups of runs, arms and logs, with scatter between runs, nodes and rounds."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.folders import (
    SETUP_S,
    START,
    STEP_S,
    Run,
    one_after_another,
    write_run,
)
from benchmarks.analysis_coverage.foreign import FORMS, Printed, write_log
from benchmarks.analysis_coverage.processes import Durations, Process, of
from benchmarks.analysis_coverage.scenario import (
    Case,
    Floats,
    Rng,
    Scenario,
    Truth,
    compared,
    pooled,
)

N = 60
# No claim about arms is asked for with fewer runs a side, or without a node that both share.
FEWEST = 3
# A key that affects the clock and not the loss: what the arms differ in.
OTHER = ("data.workers=3",)


def white(rng: Rng) -> Durations:
    """White noise, the usual process within a run."""
    return processes.white(rng, N)


def pair(
    name: str, a: Process, b: Process, *, ratio: float | None = None, scatter: float = 0.0,
    batch: int = 64, draws: int = 100, note: str = "",
) -> Scenario:  # fmt: skip
    """Return the scenario of one run a side; `ratio` is how much faster b's recipe is.

    Without a ratio that is the ratio of the means of the processes. The runs scatter by `scatter`.
    """

    def make(rng: Rng, folder: Path) -> Case:
        first, second = a(rng), b(rng)
        true = first.mean / second.mean if ratio is None else ratio
        factor = np.exp(scatter * rng.standard_normal(2))
        # At equal images per second a run of twice the batch has steps twice as long.
        longer = factor[1] * (batch / 64) * (1.0 if ratio is None else 1 / ratio)
        runs = {
            "a": Run(seconds=first.values * factor[0]),
            "b": Run(seconds=second.values * longer, overrides=OTHER, batch=batch),
        }
        paths = one_after_another(folder, runs)
        sd = float(np.hypot(first.sd, second.sd))
        these = true * factor[0] / factor[1]
        observed = float(np.log(these) + sd * rng.standard_normal())
        whole = float(np.hypot(sd, 2**0.5 * scatter))
        truth = compared(true, observed=observed, sd=whole, of_these=these)
        if first.lasting or second.lasting:  # silence is right, too
            truth = replace(truth, planted=False, oracle=False)
        return Case(argv=["speed", str(paths["a"]), str(paths["b"])], truths={"": truth})

    return Scenario(
        topic="speedup, one run each", name=name, kind="speed", make=make, draws=draws, note=note
    )


def arms(
    name: str, counts: tuple[int, int], scatter: tuple[float, float], *, ratio: float = 1.0,
    nodes: float | None = None, tails: bool = False, topic: str = "speedup of arms",
    shared: bool = False, draws: int = 80, note: str = "",
) -> Scenario:  # fmt: skip
    """Return the scenario of two arms of repeats whose runs scatter by `scatter` each.

    With `nodes` each arm has a node of its own, and nodes scatter by so much. With `tails` the
    scatter has the tails of Student's t with 3 degrees of freedom. With `shared` all runs begin at
    once on one node, and the second arm is slowed down by that.
    """

    def make(rng: Rng, folder: Path) -> Case:
        drawn = [
            s * (rng.standard_t(3, k) / 3**0.5 if tails else rng.standard_normal(k))
            for k, s in zip(counts, scatter, strict=True)
        ]
        own = rng.normal(0, nodes or 0.0, 2) if nodes else np.zeros(2)
        drawn = [logs + at for logs, at in zip(drawn, own, strict=True)]
        runs: dict[str, Run] = {}
        for k in range(max(counts)):
            for side, label in enumerate("ab"):
                if k < counts[side]:
                    slower = np.exp(drawn[side][k]) / (ratio if side else 1.0)
                    runs[f"{label}{k}"] = Run(
                        seconds=white(rng).values * slower * (1.3 if shared and side else 1.0),
                        seed=k,
                        node=f"n{side}" if nodes else "n1",
                        overrides=OTHER if side else (),
                    )
        if shared:
            paths = {name: write_run(folder / name, run) for name, run in runs.items()}
        else:
            paths = one_after_another(folder, runs)
        variance, freedom = sum(s**2 / k for k, s in zip(counts, scatter, strict=True)), 1e6
        if scatter[0] == scatter[1] and min(counts) > 1:
            each, freedom = pooled(drawn)
            variance = each**2 * sum(1 / k for k in counts)
        observed = float(np.log(ratio) + drawn[0].mean() - drawn[1].mean())
        sd = (variance + 2 * (nodes or 0.0) ** 2) ** 0.5
        # Of speed and loss.
        truth = compared(ratio, observed=observed, sd=sd, freedom=freedom, comparisons=2)
        truth = Truth() if shared else truth
        if nodes or min(counts) < FEWEST:
            truth = replace(truth, planted=False, oracle=False)
        order = sorted(paths)
        argv = ["cells", *(str(paths[one]) for one in order)]
        return Case(argv=argv, truths={"": truth})

    return Scenario(topic=topic, name=name, kind="cells speed", make=make, draws=draws, note=note)


def rounds(
    name: str, number: int, *, ratio: float = 1.0, drift: float = 0.04, scatter: float = 0.01
) -> Scenario:
    """Return the scenario of two runs that took turns on a node whose speed drifts by round.

    A turn scatters by `scatter` beside what its round shares.
    """

    def make(rng: Rng, folder: Path) -> Case:
        per_turn = 14
        shared = drift * np.cumsum(rng.standard_normal(number))
        own = scatter * rng.standard_normal((2, number))
        turns = tuple(f"round-{k}" for k in range(number))
        length = SETUP_S + per_turn * 10 * STEP_S * 3 + 60
        paths = []
        for side, label in enumerate("ab"):
            factor = np.exp(shared + own[side]) / (ratio if side else 1.0)
            seconds = np.repeat(factor, per_turn) * processes.white(rng, number * per_turn).values
            starts = tuple(START + (2 * k + side) * length for k in range(number))
            run = Run(
                seconds=seconds, turns=turns, starts=starts,
                attempts=tuple(k * per_turn for k in range(number)),
                overrides=OTHER if side else (),
            )  # fmt: skip
            paths.append(str(write_run(folder / label, run)))
        observed = float(np.log(ratio) + (own[0] - own[1]).mean())
        sd = float(np.hypot(scatter, 0.02 / per_turn**0.5)) * (2 / number) ** 0.5
        truth = compared(ratio, observed=observed, sd=sd)
        return Case(argv=["speed", *paths], truths={"": truth})

    return Scenario(topic="turns on one node", name=name, kind="speed", make=make, draws=80)


def logs(
    name: str, forms: tuple[str, str], *, ratio: float = 1.0, pauses: bool = False,
    scatter: float = 0.0,
) -> Scenario:  # fmt: skip
    """Return the scenario of two logs of other trainers, with a record each 100 steps.

    With `pauses` both stop for as long as ten records' steps at the same steps, as for samples.
    """

    def make(rng: Rng, folder: Path) -> Case:
        n = 80
        lines = [processes.white(rng, n, cv=0.01).values for _ in "ab"]
        factor = np.exp(scatter * rng.standard_normal(2))
        paths = []
        for side, (label, form) in enumerate(zip("ab", forms, strict=True)):
            seconds: Floats = lines[side] * factor[side] / (ratio if side else 1.0)
            if pauses:
                seconds[4::5] += 1.0 / (ratio if side else 1.0)
            log = Printed.of(seconds, every=100, step_s=0.2)
            paths.append(str(write_log(folder / label, form, log)))
        sd = 0.01 * (2 / n) ** 0.5
        these = ratio * factor[0] / factor[1]
        whole = float(np.hypot(sd, 2**0.5 * scatter))
        observed = float(np.log(these)) + sd * rng.standard_normal()
        truth = compared(ratio, observed=observed, sd=whole, of_these=these)
        return Case(argv=["speed", *paths], truths={"": truth})

    return Scenario(topic="speedup of logs", name=name, kind="speed", make=make, draws=80)


def scenarios() -> list[Scenario]:
    """Return all scenarios of speedups."""
    p = processes

    quiet = of(p.white, 100, cv=0.01)
    found = [
        pair(f"equal, scatter {s:.1%}", white, white, ratio=1.0, scatter=s)
        for s in (0.003, 0.01, 0.02)
    ]
    found += [
        pair("1.2x, scatter 1 %", white, white, ratio=1.2, scatter=0.01),
        pair("1.5x, scatter 2 %", white, white, ratio=1.5, scatter=0.02),
        pair("equal, no scatter, 30", of(p.white, 30), of(p.white, 30)),
        pair("equal, no scatter, 200", of(p.white, 200), of(p.white, 200)),
        pair("1.05x, no scatter", white, white, ratio=1.05),
        pair("1.017x, no scatter, 30", *2 * [of(p.white, 30)], ratio=1.017),
        pair("1.012x, no scatter, 60", white, white, ratio=1.012),
        pair("B lacks A's pauses (each 10th)", of(p.periodic_pauses, 100, period=10), quiet),
        pair("B lacks A's pauses (each 20th)", of(p.periodic_pauses, 100, period=20), quiet),
        pair("B throttles from 70 %", of(p.white, 200, cv=0.01), of(p.throttled, 200)),
        pair("equal, both AR(.5)", *2 * [of(p.autoregressive, 100, rho=0.5)]),
        pair("equal, both AR(.9)", *2 * [of(p.autoregressive, 200, rho=0.9)]),
        pair("equal, both two speeds", *2 * [of(p.two_speeds, 200)]),
        pair("equal, both sticky", *2 * [of(p.two_speeds, 200, stay=0.85)]),
        pair("equal, both with pauses", *2 * [of(p.periodic_pauses, 100, period=10)]),
        pair("1.2x, both with pauses", *2 * [of(p.periodic_pauses, 200, period=10)], ratio=1.2),
        pair("equal, tails of t3", *2 * [of(p.heavy_tails, 100)]),
        pair("equal, lognormal .3", *2 * [of(p.lognormal, 100, sigma=0.3)]),
        pair("equal, both drift by 10 %", *2 * [of(p.drifting, 200)]),
        pair("equal images/s at twice the batch", white, white, ratio=1.0, batch=128),
        pair("1.25x images/s at twice the batch", white, white, ratio=1.25, batch=128),
    ]
    found += [
        arms(f"equal, {a}v{b}, scatter 3 against .3 %", (a, b), (0.03, 0.003))
        for a, b in ((2, 5), (3, 3), (1, 3), (5, 5))
    ]
    found += [
        arms("equal, 5v2, scatter .3 against 3 %", (5, 2), (0.003, 0.03)),
        arms("equal, 3v3, scatter 1 %", (3, 3), (0.01, 0.01)),
        arms("equal, 2v2, scatter 1 %", (2, 2), (0.01, 0.01)),
        arms("1.1x, 4v4, scatter 1 %", (4, 4), (0.01, 0.01), ratio=1.1),
        arms("1.05x, 6v6, scatter 1 %", (6, 6), (0.01, 0.01), ratio=1.05),
        arms("1.034x, 3v3, scatter 1 %", (3, 3), (0.01, 0.01), ratio=1.034),
        arms("1.024x, 5v5, scatter 1 %", (5, 5), (0.01, 0.01), ratio=1.024),
        arms("equal, 4v4, lognormal 5 %", (4, 4), (0.05, 0.05)),
        arms("equal, 4v4, runs of t3", (4, 4), (0.02, 0.02), tails=True),
        arms("1.2x, 5v5, runs of t3", (5, 5), (0.02, 0.02), tails=True, ratio=1.2),
    ]
    apart = "arms on nodes of their own"
    found += [
        arms(
            f"equal, {k}v{k}, nodes differ by 2 %", (k, k), (0.003, 0.003), nodes=0.02, topic=apart
        )
        for k in (3, 5)
    ]
    found.append(
        arms("equal, 4v4, nodes differ by 5 %", (4, 4), 2 * (0.003,), nodes=0.05, topic=apart)
    )
    found += [
        arms(
            "equal, at once on one host", (3, 3), (0.01, 0.01), shared=True,
            topic="at once on one host", note="any claim is false",
        ),
    ]  # fmt: skip
    found += [
        rounds("equal, 3 rounds", 3),
        rounds("equal, 6 rounds", 6),
        rounds("equal, 10 rounds", 10),
        rounds("1.05x, 6 rounds", 6, ratio=1.05),
        rounds("1.05x, 10 rounds, drift 10 %", 10, ratio=1.05, drift=0.1),
    ]
    found += [logs(f"equal, {form}", (form, form)) for form in FORMS]
    found += [
        logs("1.83x, shared pauses, TensorBoard", ("TensorBoard",) * 2, ratio=1.83, pauses=True),
        logs("1.1x, shared pauses, JSON lines", ("JSON lines",) * 2, ratio=1.1, pauses=True),
        logs("equal, shared pauses, JSON lines", ("JSON lines",) * 2, pauses=True),
        logs("equal, scatter 1 %, JSON lines", ("JSON lines",) * 2, scatter=0.01),
        logs("1.3x, CSV against JSON lines", ("CSV", "JSON lines"), ratio=1.3),
    ]
    return found
