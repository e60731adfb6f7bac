"""Microbatches of one rank, from any image on: a pure function of the config and `images`."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from configs.batch import Division
from configs.schema import Pretrain
from train.data.source import Source
from train.draws import Variant, draw, order

_Place = tuple[int, int]  # epoch, index within the training set


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One microbatch: `image`, `noise` `[m, C, H, W]`; `t` `[m]` float32; `label` `[m]` int64."""

    image: Tensor
    noise: Tensor
    t: Tensor
    label: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The batch on `device`; from pinned memory the copy does not wait."""
        moved = {f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)}
        return Batch(**moved)

    def pin_memory(self) -> "Batch":
        """The batch in page-locked memory; the data loader calls it."""
        return Batch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})


class Examples(Dataset[Batch]):
    """Makes whole microbatches of examples with what chance decides for each."""

    def __init__(self, source: Source, config: Pretrain) -> None:
        self._source, self._config = source, config

    def __getitem__(self, places: list[_Place]) -> Batch:
        config = self._config
        seed, shape = config.seed, (config.data.channels, config.data.size, config.data.size)
        images, noises, times, labels = [], [], [], []
        for epoch, index in places:
            chance = draw(seed, epoch, index, shape=shape, objective=config.objective)
            flip = config.data.flip and chance.flip
            variant = Variant(flip=flip, seed=seed, epoch=epoch, index=index)
            image, label = self._source.drawn(index, variant)
            images.append(image)
            noises.append(chance.noise)
            times.append(chance.t)
            labels.append(config.data.classes if chance.drop_label else label)
        return Batch(
            image=torch.from_numpy(np.stack(images)),
            noise=torch.from_numpy(np.stack(noises)),
            t=torch.tensor(times, dtype=torch.float32),
            label=torch.tensor(labels),
        )


class Places:
    """For each microbatch of a rank, the (epoch, index) of its examples, without end."""

    def __init__(self, *, size: int, seed: int, division: Division, rank: int, images: int) -> None:
        self._size, self._seed, self._division = size, seed, division
        self._rank, self._images = rank, images
        self._orders: dict[int, np.ndarray] = {}

    def __iter__(self) -> Iterator[list[_Place]]:
        micro, world = self._division.micro_batch, self._division.world
        begin = self._images + self._rank * micro
        while True:
            yield [self._place(position) for position in range(begin, begin + micro)]
            begin += micro * world

    def _place(self, position: int) -> _Place:
        epoch, offset = divmod(position, self._size)
        if epoch not in self._orders:
            previous = {old: kept for old, kept in self._orders.items() if old == epoch - 1}
            self._orders = previous | {epoch: order(self._seed, epoch, self._size)}
        return epoch, int(self._orders[epoch][offset])


def microbatches(
    source: Source, config: Pretrain, *, division: Division, rank: int, images: int, pin: bool
) -> Iterator[Batch]:
    """The microbatches of `rank` after `images` images of the whole run have been seen."""
    places = Places(size=len(source), seed=config.seed, division=division, rank=rank, images=images)
    loader = DataLoader(
        Examples(source, config),
        batch_size=None,
        sampler=places,
        num_workers=config.data.workers,
        pin_memory=pin,
        worker_init_fn=ignore_signals if config.data.workers else None,
    )
    return iter(loader)


def ignore_signals(worker: int) -> None:
    """Slurm signals every process of a step; only the rank itself may act on it."""
    for name in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)
    torch.set_num_threads(1)
