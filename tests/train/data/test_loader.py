"""The examples and their order do not depend on ranks, microbatches or resumes."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from configs.checks.batch import divide
from configs.load import load
from configs.schema import Pretrain
from train.data.catalog import open_source
from train.data.loader import Microbatch, MicrobatchDataset, microbatches
from train.data.source import Image, Source, training_split

CONFIG = Path("configs/pretrain/digits.yaml")


def batches(world: int, *, steps: int, images: int = 0, **keys: object) -> list[Microbatch]:
    """Return the global batches of digits."""
    overrides = [f"{name.replace('__', '.')}={value}" for name, value in keys.items()]
    config = load(CONFIG, ["train.global_batch=16", *overrides])
    return global_batches(config, world=world, steps=steps, images=images)


def global_batches(
    config: Pretrain, *, world: int, steps: int, images: int = 0
) -> list[Microbatch]:
    """Return the global batch of each step, in the order of the examples."""
    source = training_split(open_source(config.data), config.data)
    layout = divide(config, world=world)
    loaders = [
        microbatches(source, config, layout=layout, rank=rank, images=images, pin=False)
        for rank in range(world)
    ]
    joined = []
    for _ in range(steps):
        parts = [next(loader) for _ in range(layout.accumulation) for loader in loaders]
        fields = {
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("image", "noise", "t", "label")
        }
        joined.append(Microbatch(**fields))
    return joined


def same(first: list[Microbatch], second: list[Microbatch]) -> bool:
    return all(
        torch.equal(getattr(a, name), getattr(b, name))
        for a, b in zip(first, second, strict=True)
        for name in ("image", "noise", "t", "label")
    )


@pytest.mark.parametrize(("world", "micro"), [(2, "null"), (4, "null"), (1, 4), (2, 2), (4, 1)])
def test_examples_do_not_depend_on_ranks_or_microbatches(world: int, micro: object) -> None:
    assert same(batches(1, steps=5), batches(world, steps=5, train__micro_batch=micro))


def test_a_resume_continues_at_the_next_image_across_epochs() -> None:
    uninterrupted = batches(1, steps=90)  # 84.25 steps of 16 make an epoch of 1,348
    assert same(uninterrupted[83:], batches(1, steps=7, images=83 * 16))


def test_the_patches_that_skip_blocks_belong_to_the_example() -> None:
    config = load(CONFIG, ["train.global_batch=8", "model.depth=5", "model.routing.kind=tread"])
    source = training_split(open_source(config.data), config.data)
    kept = []
    for world in (1, 2):
        layout = divide(config, world=world)
        loaders = [
            microbatches(source, config, layout=layout, rank=rank, images=0, pin=False)
            for rank in range(world)
        ]
        kept.append([[next(loader).keep for loader in loaders] for _ in range(2)])
    whole, halves = kept
    for step in range(2):
        assert torch.equal(torch.cat(halves[step]), whole[step][0])
        assert whole[step][0].shape == (8, 8)  # half of 16 patches
    assert not torch.equal(whole[0][0], whole[1][0])


def test_loader_workers_change_nothing() -> None:
    assert same(batches(1, steps=3), batches(1, steps=3, data__workers=2))


def test_an_epoch_shows_every_example_once() -> None:
    seen = batches(1, steps=337, train__global_batch=4)
    images = [image.numpy().tobytes() for batch in seen for image in batch.image]
    source = training_split(open_source(load(CONFIG).data), load(CONFIG).data)
    assert sorted(images) == sorted(source[i][0].tobytes() for i in range(len(source)))


def test_flipping_mirrors_half_of_the_images() -> None:
    plain = torch.cat([batch.image for batch in batches(1, steps=20)])
    flipped = torch.cat([batch.image for batch in batches(1, steps=20, data__flip="true")])
    mirrored = [
        torch.equal(a, b.flip(-1)) and not torch.equal(a, b)
        for a, b in zip(plain, flipped, strict=True)
    ]
    assert 0.4 < sum(mirrored) / len(mirrored) < 0.6
    assert all(
        torch.equal(a, b) or torch.equal(a, b.flip(-1))
        for a, b in itertools.islice(zip(plain, flipped, strict=True), 320)
    )


def test_dropped_labels_become_the_null_label() -> None:
    labels = torch.cat([b.label for b in batches(1, steps=40, objective__label_dropout=0.5)])
    assert set(labels.tolist()) == set(range(11))
    assert 0.4 < (labels == 10).float().mean() < 0.6


class Pixels(Source):
    """Random images, as bytes or as the float32 that these mean."""

    def __init__(self, *, as_bytes: bool) -> None:
        self._as_bytes = as_bytes

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> tuple[Image, int]:
        pixels = np.random.default_rng(index).integers(0, 256, (3, 8, 8), dtype=np.uint8)
        return pixels if self._as_bytes else pixels.astype(np.float32) / 127.5 - 1, 0


def test_bytes_are_normalised_on_the_device_to_the_same_bits() -> None:
    keys = ["data.source=dummy", "data.channels=3", "data.size=8", "data.flip=true"]
    config = load(CONFIG, [*keys, "data.held_out=0"])
    raw, whole = (
        MicrobatchDataset(Pixels(as_bytes=as_bytes), config)[[(0, n) for n in range(16)]]
        for as_bytes in (True, False)
    )
    assert (raw.image.dtype, whole.image.dtype) == (torch.uint8, torch.float32)
    assert raw.image.nbytes * 4 == whole.image.nbytes
    device = torch.device("cpu")
    assert same([raw.to(device)], [whole.to(device)])
    assert raw.to(device).image.dtype == torch.float32
