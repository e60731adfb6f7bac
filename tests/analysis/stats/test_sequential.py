import math

import numpy as np
import pytest

from analysis.stats.intervals import repeats_ratio
from analysis.stats.sequential import (
    Planned,
    interval_so_far,
    is_in_reach,
    repeats_needed,
    side,
)
from configs.schema.study import FEWEST_REPEATS
from tests.analysis.synthetic_runs import ar1_noise

MOST, MARGIN = 10, 0.02
# The fixed number of repeats that would reach about as many verdicts.
EQUAL = 7
EFFECTS = (0.0, 0.0, 0.005, 0.02, 0.05, 0.1, 0.3, 0.6)


def plan(contrasts: int, most: int) -> Planned:
    return Planned(contrasts=contrasts, least=FEWEST_REPEATS, most=most, margin=MARGIN)


class Planted:
    """A study whose true log ratios are known; noise of a run is 0.5-3 %, of a cell its own."""

    def __init__(self, rng: np.random.Generator) -> None:
        cells = int(rng.integers(2, 25))
        self.truth = rng.choice(EFFECTS, cells - 1) * rng.choice([-1, 1], cells - 1)
        spread = rng.uniform(0.005, 0.03) * rng.uniform(0.7, 1.4, (cells, 1))
        noise = np.stack(
            [ar1_noise(rng, MOST, rho=float(rng.uniform(0, 0.2))) for _ in range(cells)]
        )
        # Some runs are slow, all cells drift together.
        slow = (rng.random((cells, MOST)) < 0.03) * rng.exponential(0.05, (cells, MOST))
        drift = rng.uniform(-0.03, 0.03) * np.linspace(0, 1, MOST)
        self.logs = np.concatenate([[0.0], self.truth])[:, None] + spread * noise - slow + drift


def play(planted: Planted) -> tuple[bool, int, int]:
    """Return whether an interval or a verdict was wrong, the runs made, and the verdicts."""
    cells = len(planted.truth)
    planned = plan(cells, MOST)
    repeats, verdicts, is_wrong = [MOST] * cells, 0, False
    for cell, true in enumerate(planted.truth):
        for n in range(FEWEST_REPEATS, MOST + 1):
            logs = planted.logs[[cell + 1, 0], :n]
            found = interval_so_far(logs, planned)
            is_wrong |= not found.low <= math.exp(true) <= found.high
            where = side(found, margin=MARGIN)
            if where is not None:
                verdicts += 1
                is_wrong |= where != np.sign(true) if where else abs(true) > math.log1p(MARGIN)
            if where is not None or not is_in_reach(logs, planned):
                repeats[cell] = n
                break
    # The first cell is run until the last other one is settled.
    return is_wrong, sum(repeats) + max(repeats), verdicts


def verdicts_at_once(planted: Planted, repeats: int) -> int:
    """Return the number of verdicts of a single look at so many repeats of each cell."""
    confidence = plan(len(planted.truth), FEWEST_REPEATS).confidence
    first, *others = np.exp(planted.logs[:, :repeats])
    found = [repeats_ratio(other, first, confidence=confidence) for other in others]
    return sum(side(ratio, margin=MARGIN) is not None for ratio in found)


def check_studies(count: int) -> None:
    rng = np.random.default_rng(5)
    studies = [Planted(rng) for _ in range(count)]
    wrong, runs, verdicts = np.array([play(planted) for planted in studies]).sum(axis=0)
    cells = sum(len(planted.logs) for planted in studies)
    fixed = {n: sum(verdicts_at_once(planted, n) for planted in studies) for n in (EQUAL, MOST)}
    print(
        f"wrong {wrong / count:.4f}, runs {runs / cells:.3f} a cell, verdicts {verdicts}, {fixed}"
    )
    assert wrong / count <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / count)
    assert runs <= 0.6 * MOST * cells
    assert verdicts >= 0.9 * fixed[MOST]
    assert (runs <= 0.8 * EQUAL * cells, verdicts >= 0.97 * fixed[EQUAL]) == (True, True)


def test_all_intervals_of_a_study_hold_at_every_look():
    check_studies(150)


@pytest.mark.long
def test_all_intervals_of_two_thousand_studies_hold_at_every_look():
    check_studies(2000)


def test_repeats_needed_are_those_after_which_the_interval_settles():
    planned = plan(3, 8)
    pattern = np.tile([[0.01, 0.05, 0.03], [-0.02, 0.02, 0.0]], 20)
    needed = repeats_needed(pattern[:, :6], planned)
    settles = [side(interval_so_far(pattern[:, :n], planned), margin=MARGIN) for n in range(3, 60)]
    assert abs(needed - (3 + settles.index(1))) <= 2
    assert not is_in_reach(pattern[[0, 0], :6], plan(3, 12))
    assert is_in_reach(pattern[:, :6], plan(3, needed))


def test_equal_losses_are_settled_at_once():
    planned = plan(1, 5)
    assert interval_so_far(np.zeros((1, 2)), planned) is None
    assert side(interval_so_far(np.zeros((1, 3)), planned), margin=MARGIN) == 0
