"""Batch order, times, image sizes, noise and the loss follow their formulas."""

from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from configs.checks.batch import divide
from finetune.native.data import Batches, BatchOrder
from finetune.native.encoders import fitted_size
from finetune.native.inputs import CaptionedImage, Encoded
from finetune.native.loss import LatentBatch, losses
from finetune.native.pipeline import initial_noise
from finetune.native.rng import epoch_order, flow_time, image_randomness
from tests.finetune.aitoolkit_runs import finetune_config

SIZES = st.lists(st.sampled_from([(4, 4), (4, 6), (8, 8)]), min_size=1, max_size=12)


@given(sizes=SIZES, batch=st.integers(1, 5), seed=st.integers(0, 9), cycle=st.integers(0, 3))
def test_a_cycle_shows_every_item_once_per_place_of_a_batch_and_a_batch_holds_one_size(
    sizes: list[tuple[int, int]], batch: int, seed: int, cycle: int
) -> None:
    order = BatchOrder(sizes, seed=seed, global_batch=batch)
    first = cycle * len(sizes) + 1
    batches = [order.batch(first + step) for step in range(len(sizes))]
    assert all(len(each) == batch for each in batches)
    assert all(len({sizes[item] for item in each}) == 1 for each in batches)
    assert Counter(chain(*batches)) == dict.fromkeys(range(len(sizes)), batch)


def test_a_batch_of_one_shows_every_item_once_per_epoch() -> None:
    sizes = [(4, 4)] * 3 + [(4, 6)] * 2
    order = BatchOrder(sizes, seed=1, global_batch=1)
    assert [order.batch(step) for step in range(6, 11)] == [
        [item] for item in epoch_order(1, 1, len(sizes))
    ]


def test_order_and_randomness_depend_only_on_seed_and_number() -> None:
    one, two = (BatchOrder([(4, 4)] * 7, seed=3, global_batch=2) for _ in range(2))
    assert [one.batch(step) for step in (9, 1)] == [two.batch(step) for step in (1, 9)][::-1]
    settings = {"shape": (16, 4, 4), "dropout": 0.5}
    a, b, c = (image_randomness(0, number, **settings) for number in (5, 5, 6))
    assert a.t == b.t
    assert (a.noise == b.noise).all()
    assert a.t != c.t


def batches(*, world: int = 1, rank: int = 0) -> Batches:
    """Return batches of 4 over three images, whose latents hold the number of the image."""
    data = {"folder": "/d", "resolutions": [64]}
    config = finetune_config(data=data, train={"global_batch": 4})
    encoded: Encoded = {}
    for number in range(1, 4):
        latent = torch.full((16, 4, 4), float(number))
        encoded[CaptionedImage(f"{number}", Path(f"{number}.png"))] = {
            "latent.64": latent, "prompt": torch.zeros(2, 3), "pooled": torch.zeros(3),
        }  # fmt: skip
    inputs: Any = SimpleNamespace(training=list(encoded))
    return Batches(encoded, inputs, config, layout=divide(config, world=world), rank=rank)


def numbers(batch: LatentBatch) -> list[int]:
    return [int(value) for value in batch.latent[:, 0, 0, 0]]


def test_any_number_of_ranks_draws_the_same_examples() -> None:
    one = batches()
    two = [batches(world=2, rank=rank) for rank in range(2)]
    for step in (1, 2, 7, 8):
        parts = [of.microbatch(step, 0) for of in two]
        whole = one.microbatch(step, 0)
        for name in ("latent", "noise", "t"):
            assert torch.equal(torch.cat([getattr(p, name) for p in parts]), getattr(whole, name))


def test_times_are_the_sigmoid_of_a_normal() -> None:
    times = torch.tensor([flow_time((k + 0.5) / 1000) for k in range(1000)])
    logits = torch.logit(times)
    assert logits.mean().item() == pytest.approx(0, abs=1e-6)
    assert logits.std().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        (1024, 1024, (512, 512)),
        (2000, 1000, (640, 384)),
        (1000, 2000, (384, 640)),
        (400, 300, (384, 320)),
        (30, 30, (64, 64)),
    ],
)
def test_images_keep_their_shape_and_are_never_enlarged(
    width: int, height: int, expected: tuple[int, int]
) -> None:
    assert fitted_size(width, height, resolution=512, bucket=64) == expected


@given(width=st.integers(16, 4000), height=st.integers(16, 4000), resolution=st.integers(64, 1024))
def test_fitted_sizes_are_whole_tokens_within_the_area(
    width: int, height: int, resolution: int
) -> None:
    size = fitted_size(width, height, resolution=resolution, bucket=64)
    assert all(side % 64 == 0 and side > 0 for side in size)
    assert size[0] * size[1] <= resolution**2 or min(size) == 64


class Perfect(torch.nn.Module):
    """Predicts the exact velocity plus `off`."""

    def __init__(self, batch: LatentBatch, off: float) -> None:
        super().__init__()
        self.config = SimpleNamespace(guidance_embeds=True)
        self._batch, self._off = batch, off
        self.given: dict[str, Any] = {}

    def forward(self, **given: Any) -> tuple[torch.Tensor]:
        self.given = given
        v = self._batch.noise - self._batch.latent
        count, channels, height, width = v.shape
        # Tokens are in row order; in a token, channels come before the 2 x 2 positions.
        tokens = v.reshape(count, channels, height // 2, 2, width // 2, 2)
        packed = tokens.permute(0, 2, 4, 1, 3, 5).reshape(count, -1, channels * 4)
        return (packed + self._off,)


def test_the_loss_is_the_mean_squared_error_of_noise_minus_latent() -> None:
    batch = LatentBatch(
        latent=torch.randn(2, 16, 4, 6),
        noise=torch.randn(2, 16, 4, 6),
        t=torch.tensor([0.25, 1.0]),
        prompt=torch.zeros(2, 5, 8),
        pooled=torch.zeros(2, 3),
    )
    network = Perfect(batch, off=0.5)
    assert torch.allclose(losses(network, batch), torch.tensor([0.25, 0.25]))  # type: ignore[arg-type]
    given = network.given
    assert given["hidden_states"].shape == (2, 6, 64)
    assert given["img_ids"].shape == (6, 3)
    assert given["img_ids"][:, 1:].tolist() == [
        [row, column] for row in (0, 1) for column in (0, 1, 2)
    ]
    assert given["guidance"].tolist() == [1, 1]
    # At t = 1 the input is the noise itself.
    assert torch.equal(given["hidden_states"][1, 0, :4], batch.noise[1, 0, :2, :2].flatten())


def test_the_noise_of_a_seed_is_drawn_on_the_cpu_at_the_image_size() -> None:
    noise = initial_noise(7, width=64, height=32)
    assert noise.shape == (1, 16, 4, 8)
    assert noise.device.type == "cpu"
    assert torch.equal(noise, initial_noise(7, width=64, height=32))
    assert not torch.equal(noise, initial_noise(8, width=64, height=32))
