"""Batches of cached latents, each with the embedding of its own caption."""

import numpy as np
import torch

from configs.checks.batch import BatchLayout
from configs.schema import Finetune
from finetune.native.cache import Cache, CacheRequest, latent_name
from finetune.native.draws import ImageRandomness, draw
from finetune.native.loss import LatentBatch
from finetune.native.order import Order


class Batches:
    """The microbatches of one rank, by step: the same images whatever the number of ranks."""

    def __init__(
        self,
        cache: Cache,
        wanted: CacheRequest,
        config: Finetune,
        *,
        layout: BatchLayout,
        rank: int,
    ) -> None:
        self._cache, self._no_caption, self._config = cache, wanted.no_caption, config
        sizes = config.data.resolutions
        self._items = [(example, size) for size in sizes for example in wanted.images]
        self._shapes = [cache.shape(example, latent_name(size)) for example, size in self._items]
        self._micro = layout.micro_batch
        self._first = rank * layout.micro_batch * layout.accumulation
        self._order = Order(
            [(shape[1], shape[2]) for shape in self._shapes],
            seed=config.seed,
            global_batch=config.train.global_batch,
        )

    def micro(self, step: int, part: int) -> LatentBatch:
        """Microbatch `part` (from 0) of this rank in a step (from 1)."""
        begin = self._first + part * self._micro
        items = self._order.batch(step)[begin : begin + self._micro]
        number = (step - 1) * self._config.train.global_batch + begin
        draws = [self._draw(number + place, item) for place, item in enumerate(items)]
        made = [self._made(item, drawn) for item, drawn in zip(items, draws, strict=True)]
        latents, prompts, pooled = (torch.stack(parts) for parts in zip(*made, strict=True))
        return LatentBatch(
            latent=latents,
            noise=torch.from_numpy(np.stack([drawn.noise for drawn in draws])),
            t=torch.tensor([drawn.t for drawn in draws], dtype=torch.float32),
            prompt=prompts,
            pooled=pooled,
        )

    def _draw(self, number: int, item: int) -> ImageRandomness:
        return draw(
            self._config.seed,
            number,
            shape=self._shapes[item],
            timesteps=self._config.train.timesteps,
            dropout=self._config.data.caption_dropout,
        )

    def _made(self, item: int, drawn: ImageRandomness) -> list[torch.Tensor]:
        example, size = self._items[item]
        (latent,) = self._cache.part(example, latent_name(size))
        text = self._no_caption if drawn.drop_caption else example
        return [latent, *self._cache.part(text, "prompt", "pooled")]
