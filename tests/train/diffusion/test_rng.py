"""Random numbers are a pure function of seed, epoch and index."""

import numpy as np
import pytest

from configs.schema.objective import Objective
from train.diffusion.rng import epoch_order, example_randomness, held_out_indices

SHAPE = (1, 8, 8)


def test_the_same_key_gives_the_same_numbers_and_another_key_gives_others() -> None:
    first = example_randomness(1, 2, 3, shape=SHAPE, objective=Objective())
    again = example_randomness(1, 2, 3, shape=SHAPE, objective=Objective())
    assert first.t == again.t
    assert np.array_equal(first.noise, again.noise)
    for key in [(2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 3, 2)]:
        other = example_randomness(*key, shape=SHAPE, objective=Objective())
        assert other.t != first.t
        assert not np.array_equal(other.noise, first.noise)


def test_each_epoch_visits_every_example_once_in_its_own_order() -> None:
    first, second = epoch_order(0, 0, 100), epoch_order(0, 1, 100)
    assert sorted(first) == sorted(second) == list(range(100))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("timesteps", ["uniform", "logit_normal"])
def test_times_have_the_density_of_the_config(timesteps: str) -> None:
    objective = Objective(timesteps=timesteps, logit_mean=0.5, logit_std=0.8)
    times = np.array(
        [
            example_randomness(0, 0, index, shape=(1,), objective=objective).t
            for index in range(4000)
        ]
    )
    if timesteps == "uniform":
        mean, std, found = 0.5, 12**-0.5, times
    else:
        mean, std, found = 0.5, 0.8, np.log(times / (1 - times))
    # Five standard errors of a mean over 4,000 draws.
    assert abs(found.mean() - mean) < 5 * std / 4000**0.5
    assert abs(found.std() / std - 1) < 0.06


def test_labels_are_dropped_at_the_configured_rate_and_half_the_images_flipped() -> None:
    objective = Objective(label_dropout=0.25)
    draws = [
        example_randomness(0, 0, index, shape=(1,), objective=objective) for index in range(4000)
    ]
    assert np.mean([draw.drop_label for draw in draws]) == pytest.approx(0.25, abs=0.035)
    assert np.mean([draw.flip for draw in draws]) == pytest.approx(0.5, abs=0.04)


def test_held_out_examples_are_the_same_every_time_and_as_many_as_configured() -> None:
    assert len(held_out_indices(1797, 0.25)) == 449
    assert np.array_equal(held_out_indices(100, 0.1), held_out_indices(100, 0.1))
    assert len(held_out_indices(100, 0.0)) == 0
