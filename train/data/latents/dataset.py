"""A store of latents as a source: each epoch draws anew from the VAE's posterior."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from train.data.latents.store import Index, ShardFile
from train.data.source import Source
from train.diffusion.rng import Augmentation

# Below the 1,024 files that a process may open by default.
_MOST_OPEN = 512


class Latents(Source):
    """The latents of a store, `[C, H, W]` float32, normalised.

    As it is, an example is the posterior's mean. Drawn, it is mean + std * noise, of the
    mirrored image's own posterior where it is mirrored: a mirrored latent is not one of a
    mirrored image. Shards are opened when they are first read, in the process that reads them.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        self._shards = [entry for entry in index.shards if entry.examples]
        self._begins = list(accumulate((entry.examples for entry in self._shards), initial=0))
        self._open: OrderedDict[int, ShardFile] = OrderedDict()
        # Every read goes through the one buffer: half of a small latent's time was in making them.
        self._both = torch.empty(index.moments, *index.shape, dtype=getattr(torch, index.dtype))
        self._mean = self._both[:1]
        self._both_bytes, self._mean_bytes = self._both.numpy().data, self._mean.numpy().data

    def __reduce__(self) -> tuple[type["Latents"], tuple[Path, Index]]:
        return Latents, (self.folder, self.index)

    def __len__(self) -> int:
        return self._begins[-1]

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        moments, label = self.moments(index, with_std=False)
        return moments[0], label

    def augmented(self, index: int, variant: Augmentation) -> tuple[NDArray[np.float32], int]:
        """A draw from the posterior of the image, or of its mirror image."""
        moments, label = self.moments(index, flip=variant.flip)
        if len(moments) == 1:
            return moments[0], label
        mean, std = moments
        return mean + std * variant.noise(mean.shape), label

    def moments(
        self, index: int, *, flip: bool = False, with_std: bool = True
    ) -> tuple[NDArray[np.float32], int]:
        """Mean, and std where it is wanted and the VAE has one, `[1 or 2, C, H, W]`; label."""
        number = bisect_right(self._begins, index) - 1
        if not 0 <= number < len(self._shards):
            raise IndexError(index)
        shard = self._open.get(number) or self._opened(number)
        place = index - self._begins[number]
        moments = self._both if with_std else self._mean
        shard.read(place, flip=flip, into=self._both_bytes if with_std else self._mean_bytes)
        # torch widens float16 six times as fast as numpy.
        return moments.to(torch.float32, copy=True).numpy(), shard.labels[place]

    def labels(self) -> Iterator[tuple[str, list[int]]]:
        """The labels of each shard, with its name."""
        for number, entry in enumerate(self._shards):
            yield entry.name, (self._open.get(number) or self._opened(number)).labels

    def _opened(self, number: int) -> ShardFile:
        entry = self._shards[number]
        shard = self._open[number] = ShardFile(self.folder / entry.name, entry, self.index)
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return shard
