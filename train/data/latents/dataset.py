"""A latent store as a data set: each epoch samples anew from the VAE's posterior."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from train.data.latents.store import ShardFile, StoreIndex
from train.data.source import Source
from train.diffusion.rng import Augmentation

# Less than the 1,024 files that a process may open by default.
_MAX_OPEN = 512


class Latents(Source):
    """The latents of a store, `[C, H, W]` float32, normalised.

    Without augmentation, an example is the posterior's mean; with it, mean + std * noise. A
    mirrored example comes from the encoding of the mirrored image: mirroring a latent gives
    something else. Shards are opened at the first read, in the process that reads them.
    """

    def __init__(self, folder: Path, index: StoreIndex) -> None:
        self.folder, self.index = folder, index
        self._shards = [entry for entry in index.shards if entry.examples]
        self._begins = list(accumulate((entry.examples for entry in self._shards), initial=0))
        self._open: OrderedDict[int, ShardFile] = OrderedDict()
        # One buffer for all reads: allocating one per read took half the time of a small latent.
        self._buffer = torch.empty(2, *index.shape, dtype=getattr(torch, index.dtype))
        self._mean = self._buffer[:1]
        self._buffer_bytes, self._mean_bytes = self._buffer.numpy().data, self._mean.numpy().data

    def __reduce__(self) -> tuple[type["Latents"], tuple[Path, StoreIndex]]:
        return Latents, (self.folder, self.index)

    def __len__(self) -> int:
        return self._begins[-1]

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        moments, label = self.moments(index, with_std=False)
        return moments[0], label

    def augmented(self, index: int, augmentation: Augmentation) -> tuple[NDArray[np.float32], int]:
        """Return a sample from the posterior of the image, or of its mirror image."""
        (mean, std), label = self.moments(index, flip=augmentation.flip)
        return mean + std * augmentation.noise(mean.shape), label

    def moments(
        self, index: int, *, flip: bool = False, with_std: bool = True
    ) -> tuple[NDArray[np.float32], int]:
        """Return mean and, if wanted, std `[1 or 2, C, H, W]`; and the label."""
        number = bisect_right(self._begins, index) - 1
        if not 0 <= number < len(self._shards):
            raise IndexError(index)
        shard = self._shard(number)
        position = index - self._begins[number]
        moments = self._buffer if with_std else self._mean
        shard.read(position, flip=flip, into=self._buffer_bytes if with_std else self._mean_bytes)
        # torch converts float16 to float32 six times as fast as numpy.
        return moments.to(torch.float32, copy=True).numpy(), shard.labels[position]

    def features(self, index: int, *, flip: bool) -> NDArray[np.float16]:
        """Return the features of an image or of its mirror image, `[T, D]`."""
        assert self.index.features is not None
        number = bisect_right(self._begins, index) - 1
        found = np.empty(self.index.features.shape, dtype=np.float16)
        position = index - self._begins[number]
        self._shard(number).read_features(position, flip=flip, into=found.data)
        return found

    def labels(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the name and the labels of each shard."""
        for number, entry in enumerate(self._shards):
            yield entry.name, self._shard(number).labels

    def _shard(self, number: int) -> ShardFile:
        if number not in self._open:
            entry = self._shards[number]
            self._open[number] = ShardFile(self.folder / entry.name, entry, self.index)
            if len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)[1].close()
        return self._open[number]
