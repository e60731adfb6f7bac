import math
from collections.abc import Iterable

import numpy as np
import pytest
from scipy.stats import t as student

from analysis.stats.sequential import (
    MOST_FREEDOM,
    CommonVariance,
    Planned,
    common_variance,
    interval_so_far,
    is_in_reach,
    side,
)
from configs.schema.study import FEWEST_REPEATS
from tests.analysis.synthetic_runs import ar1_noise

MOST, MARGIN = 10, 0.02
# A fixed number of repeats that reaches about as many verdicts.
EQUAL = 9
EFFECTS = (0.0, 0.0, 0.005, 0.02, 0.05, 0.1, 0.3, 0.6)


def plan(contrasts: int, most: int) -> Planned:
    return Planned(contrasts=contrasts, least=FEWEST_REPEATS, most=most, margin=MARGIN)


class Planted:
    """A study whose true log ratios are known; noise of a run is 0.5-3 %, of a cell its own.

    The scatter of a cell is that of the study times exp(`unlike` z), z normal; None: times 0.7-1.4.
    """

    def __init__(self, rng: np.random.Generator, *, unlike: float | None = None) -> None:
        cells = int(rng.integers(2, 25))
        self.truth = rng.choice(EFFECTS, cells - 1) * rng.choice([-1, 1], cells - 1)
        of_cell = (
            rng.uniform(0.7, 1.4, (cells, 1))
            if unlike is None
            else np.exp(unlike * rng.standard_normal((cells, 1)))
        )
        noise = np.stack(
            [ar1_noise(rng, MOST, rho=float(rng.uniform(0, 0.2))) for _ in range(cells)]
        )
        # Some runs are slow, all cells drift together.
        slow = (rng.random((cells, MOST)) < 0.03) * rng.exponential(0.05, (cells, MOST))
        drift = rng.uniform(-0.03, 0.03) * np.linspace(0, 1, MOST)
        spread = rng.uniform(0.005, 0.03) * of_cell
        self.logs = np.concatenate([[0.0], self.truth])[:, None] + spread * noise - slow + drift


def play(planted: Planted) -> tuple[bool, int, int]:
    """Return whether an interval or a verdict was wrong, the runs made, and the verdicts."""
    others = len(planted.truth)
    planned = plan(others, MOST)
    repeats, verdicts, is_wrong = np.full(others + 1, FEWEST_REPEATS), 0, False
    still_open = set(range(others))
    for n in range(FEWEST_REPEATS, MOST + 1):
        repeats[[0, *(cell + 1 for cell in still_open)]] = n
        ratios = planted.logs[1:] - planted.logs[0]
        made = [logs[:k] for logs, k in zip(ratios, repeats[1:], strict=True)]
        for cell in sorted(still_open):
            true, logs = planted.truth[cell], ratios[cell, :n]
            found = interval_so_far(logs, planned, cells=made)
            is_wrong |= not found.low <= math.exp(true) <= found.high
            where = side(found, margin=MARGIN)
            if where is not None:
                verdicts += 1
                is_wrong |= where != np.sign(true) if where else abs(true) > math.log1p(MARGIN)
            if where is not None or not is_in_reach(logs, planned, cells=made):
                still_open.remove(cell)
        if not still_open:
            break
    # The first cell is run until the last other one is settled.
    return is_wrong, int(repeats.sum()), verdicts


def verdicts_at_once(planted: Planted, repeats: int) -> int:
    """Return the verdicts of one look at so many repeats, by Student's test of two arms."""
    first, *others = planted.logs[:, :repeats]
    quantile = student.ppf(1 - 0.025 / len(others), 2 * repeats - 2)
    verdicts = 0
    for other in others:
        error = math.sqrt((other.var(ddof=1) + first.var(ddof=1)) / repeats)
        shift = abs(other.mean() - first.mean())
        verdicts += not shift <= quantile * error or shift + quantile * error <= math.log1p(MARGIN)
    return verdicts


def total(studies: Iterable[Planted]) -> tuple[int, int, int]:
    return tuple(np.array([play(planted) for planted in studies]).sum(axis=0).tolist())


def test_all_intervals_of_a_study_hold_at_every_look():
    rng, count = np.random.default_rng(5), 150
    studies = [Planted(rng) for _ in range(count)]
    wrong, runs, verdicts = total(studies)
    cells = sum(len(planted.logs) for planted in studies)
    assert wrong / count <= 0.05
    assert runs <= 0.6 * EQUAL * cells
    assert verdicts >= 0.97 * sum(verdicts_at_once(planted, EQUAL) for planted in studies)


@pytest.mark.long
@pytest.mark.parametrize("unlike", [0.3, 0.7, 1.2])
def test_intervals_hold_where_cells_scatter_by_different_amounts(unlike: float):
    rng = np.random.default_rng(6)
    wrong, _, _ = total(Planted(rng, unlike=unlike) for _ in range(1000))
    assert wrong / 1000 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)


def test_the_common_variance_counts_for_as_much_as_the_cells_are_alike():
    rng = np.random.default_rng(7)
    alike = 0.02 * rng.standard_normal((400, 4))
    found = common_variance(list(alike))
    assert found.freedom == MOST_FREEDOM
    assert found.value == pytest.approx(0.02**2, rel=0.4)
    # Variances that are 4 / chi-squared with 4 degrees of freedom.
    unlike = alike * np.sqrt(4 / rng.chisquare(4, (400, 1)))
    assert common_variance(list(unlike)).freedom == pytest.approx(4, rel=0.3)
    assert common_variance(list(alike[:3])) == CommonVariance()
    assert common_variance([np.zeros(4)] * 9) == CommonVariance()


def test_equal_losses_are_settled_at_once():
    planned = plan(1, 5)
    assert interval_so_far(np.zeros(2), planned) is None
    assert side(interval_so_far(np.zeros(3), planned), margin=MARGIN) == 0
