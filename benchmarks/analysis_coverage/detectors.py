"""What went wrong in a run: false alarms on sound runs, and planted faults that must be found."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage import processes
from benchmarks.analysis_coverage.folders import Run, write_run
from benchmarks.analysis_coverage.processes import Process, of
from benchmarks.analysis_coverage.scenario import Case, Floats, Rng, Scenario, Truth

N = 200
Losses = Callable[[Rng], Floats]


def sound_loss(rng: Rng) -> Floats:
    """Return a falling loss [N] with white noise of 2 %."""
    steps = np.arange(1.0, N + 1) * 10
    return processes.falling_loss(steps) * np.exp(0.02 * rng.standard_normal(N))


def noisy_loss(kind: Callable[[Rng], Floats]) -> Losses:
    """Return a falling loss with the noise of logs [N] that `kind` draws."""
    return lambda rng: processes.falling_loss(np.arange(1.0, N + 1) * 10) * np.exp(kind(rng))


def spiked(rng: Rng) -> Floats:
    """Return a sound loss with one spike of three times."""
    loss = sound_loss(rng)
    loss[int(rng.integers(60, 180))] *= 3
    return loss


def diverged(rng: Rng) -> Floats:
    """Return a loss that rises for good in the last fifth."""
    loss = sound_loss(rng)
    loss[160:] *= np.exp(np.linspace(0, 1.5, 40))
    return loss


def stalled(rng: Rng) -> processes.Durations:
    """Return white noise with one record of thirty times."""
    found = processes.white(rng, N)
    found.values[int(rng.integers(60, 180))] *= 30
    return found


def case(name: str, process: Process, loss: Losses, planted: str | None = None) -> Scenario:
    """Return the scenario of a run; `planted` is the fault that it has."""

    def make(rng: Rng, folder: Path) -> Case:
        run = Run(seconds=process(rng).values, loss=loss(rng))
        path = write_run(folder / "run", run)
        truths = {f"|{planted}|": Truth(planted=True, oracle=True)} if planted else {}
        return Case(argv=["runs", "--detect", str(path)], truths=truths)

    return Scenario(topic="detectors", name=name, kind="findings", make=make, draws=60)


def scenarios() -> list[Scenario]:
    """Return all scenarios of detectors."""
    p, white = processes, of(processes.white, N)
    return [
        case("sound: white", white, sound_loss),
        case("sound: AR(.9)", of(p.autoregressive, N, rho=0.9), sound_loss),
        case("sound: AR(.9) of 5 %", of(p.autoregressive, N, rho=0.9, cv=0.05), sound_loss),
        case("sound: AR(.95) of 10 %", of(p.autoregressive, N, rho=0.95, cv=0.1), sound_loss),
        case("sound: tails of t3", of(p.heavy_tails, N), sound_loss),
        case("sound: Pareto tail", of(p.pareto, N), sound_loss),
        case("sound: lognormal .3", of(p.lognormal, N, sigma=0.3), sound_loss),
        case("sound: cyclic rate, 40 records", of(p.cyclic, N, period=40.7), sound_loss),
        case("sound: cyclic rate, 12 records", of(p.cyclic, N, period=12.3), sound_loss),
        case("sound: cyclic by 30 %", of(p.cyclic, N, period=60.3, by=0.3), sound_loss),
        case("sound: tails of t2", of(p.heavy_tails, N, freedom=2.1, scale=0.05), sound_loss),
        case("sound: two speeds", of(p.two_speeds, N), sound_loss),
        case("sound: pauses each 10th", of(p.periodic_pauses, N, period=10), sound_loss),
        case(
            "sound: loss AR(.9) of 5 %",
            white,
            noisy_loss(lambda rng: 0.05 * p.correlated(rng, N, 0.9)),
        ),
        case(
            "sound: loss with tails of t3",
            white,
            noisy_loss(lambda rng: 0.03 * rng.standard_t(3, N)),
        ),
        case("sound: loss wanders by 5 %", white, noisy_loss(lambda r: p.wandering(r, N, sd=0.05))),
        case(
            "rate drops by 1.3x", of(p.throttled, N, begin=0.6, times=1.3), sound_loss, "rate drop"
        ),
        case("loss spikes to three times", white, spiked, "spike"),
        case("loss diverges", white, diverged, "divergence"),
        case("stall of 30 records", stalled, sound_loss, "stall"),
    ]
