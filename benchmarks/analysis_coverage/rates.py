"""The rate of one run: whether its interval holds the true mean rate, and whether it is given."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.folders import STEP_S, Run, write_run
from benchmarks.analysis_coverage.foreign import FORMS, Printed, write_log
from benchmarks.analysis_coverage.processes import Durations, Process, of
from benchmarks.analysis_coverage.scenario import TWO_SIDED, Case, Floats, Rng, Scenario, Truth

# The data determine a rate if the interval of the best estimate is at most this much to either
# side, and if the run is this many autocorrelation times long (or has no correlation): fewer do
# not tell how many they are.
USEFUL, TIMES = 0.03, 50
# An interval of the command that reaches further tells as little as none.
WIDEST = 0.15
EVERY = 10


def truth_of(durations: Durations, *, step_s: float = STEP_S) -> Truth:
    """Return the truth of the rate in steps per second.

    The mean of a run that changes for good has no single meaning, so silence is not held against a
    command there.
    """
    n = len(durations.values)
    is_long = durations.tau <= 1 or n / durations.tau >= TIMES
    determined = is_long and TWO_SIDED * durations.sd <= USEFUL and not durations.lasting
    rate = 1 / (durations.mean * step_s)
    return Truth(value=rate, planted=determined, oracle=determined, widest=WIDEST)


def of_run(name: str, process: Process, **fields: object) -> Scenario:
    """Return the scenario of one run folder."""

    def make(rng: Rng, folder: Path) -> Case:
        found = process(rng)
        path = write_run(folder / "run", Run(seconds=found.values, **fields))  # type: ignore[arg-type]
        return Case(argv=["speed", str(path)], truths={"": truth_of(found)})

    return Scenario(topic="rate of one run", name=name, kind="rate", make=make, draws=100)


def warmed_up(rng: Rng, n: int, *, head: int, times: float) -> Durations:
    """White noise after `head` records that are `times` as long."""
    found = processes.white(rng, n)
    values = found.values.copy()
    values[:head] *= times
    return Durations(values=values, mean=1.0, sd=0.02 / np.sqrt(n - head))


def resumed(rng: Rng, n: int) -> Durations:
    """White noise, with a slow first record of each half."""
    found = processes.white(rng, n)
    values: Floats = found.values.copy()
    values[[0, n // 2]] *= 3.0
    return Durations(values=values, mean=1.0, sd=found.sd)


def of_log(form: str, name: str, process: Process, *, step_s: float = STEP_S) -> Scenario:
    """Return the scenario of one log of another trainer."""

    def make(rng: Rng, folder: Path) -> Case:
        found = process(rng)
        log = Printed.of(found.values, every=EVERY, step_s=step_s)
        path = write_log(folder / "run", form, log)
        return Case(argv=["speed", str(path)], truths={"": truth_of(found, step_s=step_s)})

    return Scenario(
        topic="rate of one log", name=f"{form}: {name}", kind="rate", make=make, draws=80
    )


def scenarios() -> list[Scenario]:
    """Return all scenarios of single rates."""
    p = processes
    found = [of_run(f"white, {n}", of(p.white, n)) for n in (15, 30, 60, 200)]
    found += [
        of_run(f"AR({rho:g}), {n}", of(p.autoregressive, n, rho=rho))
        for rho, n in ((0.3, 60), (0.5, 30), (0.5, 60), (0.5, 200), (0.9, 30), (0.9, 200))
    ]
    found += [of_run("AR(0.9), 1200", of(p.autoregressive, 1200, rho=0.9))]
    found += [of_run(f"two speeds, {n}", of(p.two_speeds, n)) for n in (60, 200)]
    found += [
        of_run(f"two speeds, sticky, {n}", of(p.two_speeds, n, stay=0.85)) for n in (200, 800)
    ]
    found += [
        of_run(
            f"pause each {period}th, {n}",
            of(p.periodic_pauses, n, period=period),
        )
        for period, n in ((20, 60), (20, 200), (10, 60), (10, 200))
    ]
    found += [
        of_run("pauses at random, 200", of(p.random_pauses, 200)),
        of_run("pauses at random, 800", of(p.random_pauses, 800)),
        of_run("throttled from 70 %", of(p.throttled, 200)),
        of_run("throttled from 40 %", of(p.throttled, 100, begin=0.4)),
        of_run("drifts by 10 %", of(p.drifting, 200)),
        of_run("cyclic, 12 records", of(p.cyclic, 200, period=12.3)),
        replace(
            of_run("cyclic, 40 records", of(p.cyclic, 400, period=40.7)),
            note="a slow swing counts as wandering: the interval is wide",
        ),
        of_run("tails of t3, 60", of(p.heavy_tails, 60)),
        of_run("tails of t3, 200", of(p.heavy_tails, 200)),
        of_run("Pareto tail, 200", of(p.pareto, 200)),
        of_run("lognormal .3, 60", of(p.lognormal, 60, sigma=0.3)),
        of_run("lognormal .5, 200", of(p.lognormal, 200, sigma=0.5)),
        of_run("warm-up of 12 records", of(warmed_up, 100, head=12, times=1.5)),
        of_run("warm-up of one record", of(warmed_up, 60, head=1, times=8.0)),
        of_run("resumed", of(resumed, 100), attempts=(0, 50)),
        of_run("declared saves", of(p.white, 100), save_every=10),
        of_run("clock in whole seconds", of(p.white, 200), clock_grid=1.0),
        of_run("clock in tenths", of(p.white, 200), clock_grid=0.1, every=1),
    ]
    for form in FORMS:
        found.append(of_log(form, "white, 150", of(warmed_up, 150, head=1, times=4.0)))
    for form in ("JSON lines", "DiT text, whole seconds", "TensorBoard"):
        found.append(of_log(form, "pause each 10th", of(p.periodic_pauses, 200, period=10)))
    found += [
        of_log("CSV", "AR(0.5), 200", of(p.autoregressive, 200, rho=0.5)),
        of_log("progress bar", "two speeds, 200", of(p.two_speeds, 200)),
        of_log("nanoGPT text", "rounded to .01 ms", of(p.white, 200), step_s=0.0005),
    ]
    return found
