"""Batches of encoded latents, each with the embedding of its own caption."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, islice

import numpy as np
import torch

from configs.checks.batch import BatchLayout
from configs.schema import Finetune
from finetune.native.inputs import NO_CAPTION, Encoded, RunInputs, latent_name
from finetune.native.loss import LatentBatch
from finetune.native.rng import ImageRandomness, epoch_order, image_randomness


class BatchOrder:
    """The items of each step's global batch, a pure function of the seed.

    `sizes` holds the latent size of every item (an image at one resolution). A batch holds items
    of one size. A cycle has one batch per item and begins with a permutation of the items: batch
    i has the size of the permutation's item i. So each size gets as many batches as it has items,
    and every item appears `global_batch` times in a cycle; a pass through the items of a size may
    end within a batch.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], *, seed: int, global_batch: int) -> None:
        self._sizes, self._seed, self._batch = sizes, seed, global_batch
        self._cycle = lru_cache(maxsize=2)(self._batches)

    def batch(self, step: int) -> list[int]:
        """Return the items of a step (from 1)."""
        cycle, index = divmod(step - 1, len(self._sizes))
        return self._cycle(cycle)[index]

    def _batches(self, cycle: int) -> list[list[int]]:
        first, count = cycle * self._batch, len(self._sizes)
        passes = [epoch_order(self._seed, first + k, count).tolist() for k in range(self._batch)]
        queues: dict[tuple[int, int], list[int]] = {}
        for item in chain(*passes):
            queues.setdefault(self._sizes[item], []).append(item)
        streams = {size: iter(items) for size, items in queues.items()}
        return [list(islice(streams[self._sizes[item]], self._batch)) for item in passes[0]]


class Batches:
    """The microbatches of one rank, by step; a step's images do not depend on the world size."""

    def __init__(
        self,
        encoded: Encoded,
        inputs: RunInputs,
        config: Finetune,
        *,
        layout: BatchLayout,
        rank: int,
    ) -> None:
        self._encoded, self._config = encoded, config
        sizes = config.data.resolutions
        self._items = [(each, size) for size in sizes for each in inputs.training]
        self._shapes = [encoded[image][latent_name(size)].shape for image, size in self._items]
        self._micro_batch = layout.micro_batch
        self._first = rank * layout.micro_batch * layout.accumulation
        shapes = [(height, width) for _, height, width in self._shapes]
        batch = config.train.global_batch
        self._order = BatchOrder(shapes, seed=config.seed, global_batch=batch)

    def microbatch(self, step: int, index: int) -> LatentBatch:
        """Return microbatch `index` (from 0) of this rank in a step (from 1)."""
        begin = self._first + index * self._micro_batch
        items = self._order.batch(step)[begin : begin + self._micro_batch]
        number = (step - 1) * self._config.train.global_batch + begin
        draws = [self._randomness(number + place, item) for place, item in enumerate(items)]
        loaded = [self._load(item, draw) for item, draw in zip(items, draws, strict=True)]
        latents, prompts, pooled = (torch.stack(p) for p in zip(*loaded, strict=True))
        return LatentBatch(
            latent=latents,
            noise=torch.from_numpy(np.stack([draw.noise for draw in draws])),
            t=torch.tensor([draw.t for draw in draws], dtype=torch.float32),
            prompt=prompts,
            pooled=pooled,
        )

    def _randomness(self, number: int, item: int) -> ImageRandomness:
        return image_randomness(
            self._config.seed,
            number,
            shape=self._shapes[item],
            dropout=self._config.data.caption_dropout,
        )

    def _load(self, item: int, draw: ImageRandomness) -> list[torch.Tensor]:
        """Return the latent, prompt and pooled embedding of an item."""
        image, size = self._items[item]
        text = NO_CAPTION if draw.drop_caption else image
        latent = self._encoded[image][latent_name(size)]
        return [latent, self._encoded[text]["prompt"], self._encoded[text]["pooled"]]
