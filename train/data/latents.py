"""A store of latents as a source: each epoch draws anew from the VAE's posterior."""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from configs.schema.data import Data
from train.data.source import DataError, Source
from train.data.store import Index, ShardFile, read_index
from train.draws import Variant

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
        self._begins = np.cumsum([0, *(entry.examples for entry in self._shards)])
        self._open: OrderedDict[int, ShardFile] = OrderedDict()

    def __reduce__(self) -> tuple[type["Latents"], tuple[Path, Index]]:
        return Latents, (self.folder, self.index)

    def __len__(self) -> int:
        return int(self._begins[-1])

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        moments, label = self.moments(index, most=1)
        return moments[0], label

    def drawn(self, index: int, variant: Variant) -> tuple[NDArray[np.float32], int]:
        """A draw from the posterior of the image, or of its mirror image."""
        moments, label = self.moments(index, flip=variant.flip)
        if len(moments) == 1:
            return moments[0], label
        mean, std = moments
        return mean + std * variant.noise(mean.shape), label

    def moments(
        self, index: int, *, flip: bool = False, most: int = 2
    ) -> tuple[NDArray[np.float32], int]:
        """Mean, and std where the VAE has one (unless `most` is 1), `[1 or 2, C, H, W]`; label."""
        number = int(np.searchsorted(self._begins, index, side="right")) - 1
        if not 0 <= number < len(self._shards):
            raise IndexError(index)
        shard, place = self._shard(number), index - int(self._begins[number])
        moments = shard.moments(place, flip=flip, most=most)
        # torch widens float16 six times as fast as numpy.
        return torch.from_numpy(moments).float().numpy(), int(shard.labels[place])

    def labels(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """The labels of each shard, with its name."""
        for number, entry in enumerate(self._shards):
            yield entry.name, self._shard(number).labels

    def _shard(self, number: int) -> ShardFile:
        shard = self._open.get(number)
        if shard is None:
            entry = self._shards[number]
            shard = ShardFile(self.folder / entry.name, entry, self.index)
            self._open[number] = shard
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        return shard


def open_latents(data: Data) -> Latents:
    """The store of a config, after the checks that cost little; `DataError` says what to mend."""
    # Imported here: the checks read stores too.
    from train.data.doctor import cheap_problems

    assert data.path is not None
    folder = Path(data.path)
    index = read_index(folder)
    problems = _misfits(index, data) or cheap_problems(folder, index)
    if problems:
        raise DataError("\n".join(f"{folder}: {problem}" for problem in problems))
    return Latents(folder, index)


def _misfits(index: Index, data: Data) -> list[str]:
    """Where a sound store is not the one that the config describes."""
    found = []
    if index.shape != (data.channels, data.size, data.size):
        found.append(
            f"its latents are {' x '.join(map(str, index.shape))}, the config asks for "
            f"{data.channels} x {data.size} x {data.size}: set data.channels and data.size"
        )
    if index.classes > data.classes:
        found.append(f"it has {index.classes} classes, data.classes says {data.classes}: set that")
    if data.flip and index.flips == 1:
        found.append(
            "it holds no encodings of mirrored images: set data.flip false, or encode with "
            "encode.flip true into another folder"
        )
    return found
