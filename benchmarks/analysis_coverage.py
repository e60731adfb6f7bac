"""Coverage of the intervals, and precision and recall of the detectors, on synthetic runs.

python -m benchmarks.analysis_coverage [--cases 2000]
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from analysis.stats.steady_state import steady
from tests.analysis.stats.test_steady_state import mild_coverage

from analysis.measure.loss import pair_curves
from analysis.measure.speed import measure_rate
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, Floats, mean_interval, repeats_ratio
from tests.analysis.detect.test_detectors import scores
from tests.analysis.foreign_logs import log_of
from tests.analysis.synthetic_runs import SyntheticRun, ar1_noise, durations


def rate_interval(seconds: Floats) -> Estimate:
    """Return the steady duration without warm-up and outliers, as `analysis speed` does."""
    return steady(seconds, np.zeros(len(seconds), dtype=np.int64)).seconds


def coverage(
    cases: int, n: int, rho: float, interval: Callable[[Floats], Estimate]
) -> tuple[float, float]:
    """Return the share of intervals that contain the true value 1, and their mean width."""
    rng = np.random.default_rng(0)
    found = [interval(1 + 0.03 * ar1_noise(rng, n, rho=rho)) for _ in range(cases)]
    ends = [(one.low, one.high) for one in found if one.low is not None and one.high is not None]
    held = sum(low <= 1 <= high for low, high in ends)
    return held / cases, float(np.mean([high - low for low, high in ends]))


def worst_errors(cases: int, **planted: float) -> tuple[float, float]:
    """Return the 99 % quantile of the rate's relative error, and the share within 1 %."""
    errors = []
    for seed in range(cases):
        truth = SyntheticRun(seed=seed, intervals=500, cv=0.03, **planted)  # type: ignore[arg-type]
        spent = durations(truth, np.random.default_rng(seed)) / truth.every
        errors.append(abs(1 / rate_interval(spent).value / truth.steps_per_s - 1))
    return float(np.quantile(errors, 0.99)), float(np.mean(np.array(errors) < 0.01))


def power(cases: int, slower: float) -> float:
    """Return how often five runs per arm, which vary by 1 %, reveal a slow-down."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(cases):
        base, other = np.exp(0.01 * rng.standard_normal((2, 5)))
        high = repeats_ratio(other / (1 + slower), base).high
        found += high is not None and high < 1
    return found / cases


def clock_on_a_grid(rng: np.random.Generator, folder: Path) -> tuple[RunLog, float]:
    """Return a log whose clock shows whole units, and its seconds per step."""
    grid, step_s = rng.choice([0.001, 0.01, 1.0]), float(np.exp(rng.uniform(-3, 0)))
    seconds = step_s * (1 + 0.01 * rng.standard_normal(4000))
    return log_of({"elapsed_s": np.floor(seconds.cumsum() / grid) * grid}), step_s


def bar_of_every_epoch(rng: np.random.Generator, folder: Path) -> tuple[RunLog, float]:
    """Return a log with one progress bar per epoch, in whole seconds."""
    epoch_s, spread = float(rng.uniform(4, 60)), float(rng.choice([0.0, 0.02, 0.1]))
    drawn = []
    for spent in epoch_s * (1 + spread * rng.standard_normal(60)):
        ends = [(step, int(spent * step / 40)) for step in range(0, 41, 2)]
        drawn += [f"|##| {step}/40 [{s // 60:02d}:{s % 60:02d}<00:01, loss=1]" for step, s in ends]
    (folder / "bars.log").write_text("\r".join(drawn) + "\n")
    return read_logs([str(folder / "bars.log")])[0], epoch_s / 40


def stray_interval(rng: np.random.Generator, folder: Path) -> tuple[RunLog, float]:
    """Return a log with one interval far too fast or slow."""
    seconds = 0.2 * (1 + 0.02 * rng.standard_normal(int(rng.integers(20, 80))))
    seconds[rng.integers(0, len(seconds))] *= rng.choice([0.1, 0.5, 3.0, 30.0])
    return log_of({"elapsed_s": seconds.cumsum()}), 0.2


def printed_digits(rng: np.random.Generator, folder: Path) -> tuple[RunLog, float]:
    """Return a log that prints rounded seconds per step."""
    step_s, digits = float(np.exp(rng.uniform(-3, 1))), int(rng.integers(2, 4))
    printed = np.round(step_s * (1 + 0.005 * rng.standard_normal(300)), digits)
    return log_of({"step_s": printed}), step_s


def planted(cases: int, make: Callable[..., tuple[RunLog, float]]) -> tuple[float, float]:
    """Return the shares of logs whose interval holds the truth, and without an interval."""
    held = unknown = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(cases):
            log, step_s = make(np.random.default_rng(seed), Path(folder))
            rate = measure_rate(log, clock=None).rate
            if rate is None or rate.low is None or rate.high is None:
                unknown += 1
            else:
                held += rate.low <= 1 / step_s <= rate.high
    return held / cases, unknown / cases


def equal_trends(cases: int) -> float:
    """Return how often two falling curves of one loss are called different."""
    words = []
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        curve = 0.2 + rng.uniform(0.5, 5) / np.sqrt(np.arange(1, 301))
        a, b = (log_of({"loss": curve * np.exp(0.03 * ar1_noise(rng, 300, rho=0.3))}) for _ in "ab")
        words.append(pair_curves(a, b).verdict(margin=0.001))
    return words.count("different") / cases


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=2000)
    cases = options.parse_args().cases
    for name, interval in (("steady rate", rate_interval), ("mean difference", mean_interval)):
        for n, rho in ((500, 0.0), (500, 0.3), (1000, 0.15), (3000, 0.3), (200, 0.5)):
            share, width = coverage(cases, n, rho, interval)
            print(f"{name}: {n} intervals, autocorrelation {rho}: {share:.1%}, width {width:.4f}")
    for cv in (0.01, 0.02, 0.03):
        share = mild_coverage(cases, cv=cv, rho=0.3, warmup=0.3)
        print(f"20 % of 500 intervals 1.1 to 1.2 times slow, variation {cv:.0%}: {share:.1%}")
    for slower in (0.1, 0.5, 5.0):
        p99, within = worst_errors(cases, outliers=0.2, warmup=0.3, warmup_slower=slower)
        print(f"20 % outliers, 30 % warm-up {slower:+.0%}: within 1 % {within:.1%}, 99 % {p99:.4f}")
    print(f"3 % regression, five runs per arm: found {power(cases, 0.03):.1%}")
    print(f"no regression: claimed {power(cases, 0.0):.1%}")
    for make in (clock_on_a_grid, bar_of_every_epoch, stray_interval, printed_digits):
        share, unknown = planted(cases // 5, make)
        print(f"{make.__name__}: {share:.1%} hold the truth, {unknown:.1%} undetermined")
    print(f"equal falling losses called different: {equal_trends(cases // 5):.1%}")
    with tempfile.TemporaryDirectory() as folder:
        alarms, table = scores(100, Path(folder))
    print(f"detectors: {alarms} false alarms in 100 clean runs")
    for kind, (precision, recall) in table.items():
        print(f"  {kind}: precision {precision:.3f}, recall {recall:.3f}")


if __name__ == "__main__":
    main()
