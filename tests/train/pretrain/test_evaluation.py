"""The validation loss uses the same images, times and noise at every step and rank count."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import expect, load
from configs.schema import Pretrain
from configs.schema.objective import Objective
from tests.real_runs import DIGITS, TINY, trained
from train.data.digits import Digits
from train.data.loader import Microbatch
from train.data.source import Image, Source, held_out_split
from train.diffusion.rng import validation_noise, validation_order
from train.engine.distributed import process_group, read_ranks
from train.parts.held_out import HeldOutLoss, midpoint_times
from train.pretrain.train_state import make_train_state

KEYS = [*TINY, "train.steps=20", "validation.every=10", "validation.images=30"]


def evaluations(*more: str, ranks: int = 1) -> list[dict[str, Any]]:
    run = trained([*KEYS, *more], ranks=ranks)
    return [record for record in run.records() if "validation_loss" in record]


@pytest.mark.parametrize(
    ("objective", "at_half"),
    [
        (Objective(timesteps="uniform"), 0.5),
        (Objective(timesteps="logit_normal", logit_mean=0.3), 1 / (1 + np.exp(-0.3))),
    ],
    ids=["uniform", "logit_normal"],
)
def test_times_are_the_middle_quantiles_of_the_density(
    objective: Objective, at_half: float
) -> None:
    found = midpoint_times(objective, 101)
    assert found[50] == pytest.approx(at_half)
    directions = {b > a for a, b in itertools.pairwise(found)}
    assert len(directions) == 1
    assert 0 < min(found) < max(found) < 1


def test_images_and_noise_are_fixed_and_differ_from_each_other() -> None:
    assert np.array_equal(validation_order(50), validation_order(50))
    noises = [validation_noise(index, k, (4,)) for index in range(3) for k in range(3)]
    assert len({noise.tobytes() for noise in noises}) == 9
    assert np.array_equal(noises[4], validation_noise(1, 1, (4,)))


class Counting(Source):
    """The digits; counts how often each is read."""

    def __init__(self) -> None:
        self._digits, self.reads = Digits(), Counter[int]()

    def __len__(self) -> int:
        return len(self._digits)

    def __getitem__(self, index: int) -> tuple[Image, int]:
        self.reads[index] += 1
        return self._digits[index]


def test_each_image_is_read_once_for_all_its_times_and_the_mean_is_that_of_all_pairs() -> None:
    keys = [*TINY, "data.held_out=0.1", "validation.images=7", "validation.strata=3"]
    config = expect(load(DIGITS, keys), Pretrain, source="test")
    source, layout, ranks = Counting(), divide(config, world=1), read_ranks()
    with process_group(ranks):
        train_state = make_train_state(config, layout=layout, ranks=ranks)
        loss = HeldOutLoss(source, config, layout=layout, ranks=ranks).mean(train_state)
    assert sorted(source.reads.values()) == [1] * 7
    held_out = held_out_split(Digits(), config.data)
    times = midpoint_times(config.objective, 3)
    pairs = [(int(n), k) for n in validation_order(len(held_out))[:7] for k in range(3)]
    total = 0.0
    for part in (pairs[:16], pairs[16:]):  # microbatches of 16
        rows = [(*held_out[n], validation_noise(n, k, (1, 8, 8)), times[k]) for n, k in part]
        images, labels, noises, drawn = zip(*rows, strict=True)
        image, noise = (torch.from_numpy(np.stack(each)) for each in (images, noises))
        batch = Microbatch(
            image=image, noise=noise, t=torch.tensor(drawn), label=torch.tensor(labels)
        )
        with torch.no_grad():
            total += float(train_state.losses(batch).sum(dtype=torch.float64))
    assert loss == total / len(pairs)


def test_every_layout_has_the_same_validation_loss() -> None:
    one = evaluations()
    two = evaluations("layout.shard=2", "train.micro_batch=4", ranks=2)
    assert [record["step"] for record in one] == [10, 20]
    for name in ("validation_loss", "validation_loss_ema"):
        assert [a[name] for a in one] == pytest.approx([b[name] for b in two], rel=1e-6)
    assert one[-1]["validation_loss"] < one[0]["validation_loss"]
    assert one[-1]["validation_loss"] != one[-1]["validation_loss_ema"]


def test_another_seed_has_the_same_validation_set() -> None:
    # The steps are too small to learn anything, so only the validation set could differ.
    rest = "optimizer.lr=1e-12"
    first, second = (evaluations(f"seed={seed}", rest)[0] for seed in (1, 2))
    assert first["validation_loss"] == pytest.approx(second["validation_loss"], rel=1e-4)


def test_validation_without_held_out_images_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs held-out images: set data\.held_out"):
        evaluations("data.held_out=0.0")


def test_the_ema_weights_are_evaluated_in_lower_precision_too() -> None:
    # Autocast caches lower-precision copies of the weights; after the swap they are stale.
    fast = ["optimizer.lr=3e-3", "optimizer.warmup_steps=5"]
    exact = evaluations(*fast)
    rounded = evaluations(*fast, "train.precision=bf16")
    for name in ("validation_loss", "validation_loss_ema"):
        assert [a[name] for a in rounded] == pytest.approx([b[name] for b in exact], rel=1e-3)
