"""Microbatches of one rank, from any image on: a pure function of the config and `images`."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from configs.checks.batch import BatchLayout
from configs.errors import DataError
from configs.schema import Pretrain
from train.data.source import Source
from train.diffusion.objective import time_shift
from train.diffusion.rng import Augmentation, epoch_order, example_randomness
from train.diffusion.timesteps import TimeSampler

Item = TypeVar("Item")
_Place = tuple[int, int, int]  # number in the stream of images, epoch, index within the set


@dataclass(frozen=True, kw_only=True)
class Microbatch:
    """One microbatch: `image`, `noise` `[m, C, H, W]`; `t` `[m]` float32; `label` `[m]` int64.

    The losses are to be multiplied by `weight` `[m]` float32, where there is one. `skipped`
    images could not be read, and others stand in their places.
    """

    image: Tensor
    noise: Tensor
    t: Tensor
    label: Tensor
    weight: Tensor | None = None
    skipped: int = 0

    def to(self, device: torch.device) -> "Microbatch":
        """The batch on `device`; from pinned memory the copy does not wait."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Microbatch":
        """The batch in page-locked memory; the data loader calls it."""
        return self._with(Tensor.pin_memory)

    def _with(self, change: Callable[[Tensor], Tensor]) -> "Microbatch":
        return Microbatch(
            image=change(self.image),
            noise=change(self.noise),
            t=change(self.t),
            label=change(self.label),
            weight=None if self.weight is None else change(self.weight),
            skipped=self.skipped,
        )


class MicrobatchDataset(Dataset[Microbatch]):
    """Makes whole microbatches of examples with what chance decides for each."""

    def __init__(self, source: Source, config: Pretrain) -> None:
        self._source, self._config = source, config
        self._shift = time_shift(config)
        self._sampler = TimeSampler(config.objective, shift=self._shift, seed=config.seed)

    def __getitem__(self, places: list[_Place]) -> Microbatch:
        config = self._config
        seed, shape = config.seed, (config.data.channels, config.data.size, config.data.size)
        # Filled in place: to collect and stack small arrays takes as long again as to read them.
        images, noises = (np.empty((len(places), *shape), dtype=np.float32) for _ in range(2))
        times, labels, skipped = [], [], 0
        for number, (position, epoch, index) in enumerate(places):
            chance = example_randomness(
                seed, epoch, index, shape=shape, objective=config.objective, shift=self._shift
            )
            flip = config.data.flip and chance.flip
            variant = Augmentation(flip=flip, seed=seed, epoch=epoch, index=index)
            images[number], label, tries = self._drawn(index, variant)
            noises[number] = chance.noise
            skipped += tries
            times.append(self._sampler.time(chance.u, t=chance.t, position=position))
            labels.append(config.data.classes if chance.drop_label else label)
        weighted = config.objective.sampler == "variance"
        weights = torch.tensor([time.weight for time in times]) if weighted else None
        return Microbatch(
            image=torch.from_numpy(images),
            noise=torch.from_numpy(noises),
            t=torch.tensor([time.t for time in times], dtype=torch.float32),
            label=torch.tensor(labels),
            weight=weights,
            skipped=skipped,
        )

    def _drawn(self, index: int, variant: Augmentation) -> tuple[NDArray[np.float32], int, int]:
        """The example, or the next that can be read where the config says so, and the tries."""
        size = len(self._source)
        for tries in range(size if self._config.data.skip_bad else 1):
            try:
                return *self._source.augmented((index + tries) % size, variant), tries
            except DataError as error:
                if not self._config.data.skip_bad:
                    raise
                bad = error
        raise DataError(f"no image can be read; the last: {bad}")


class MicrobatchSampler:
    """For each microbatch of a rank, the places of its examples, without end."""

    def __init__(
        self, *, size: int, seed: int, layout: BatchLayout, rank: int, images: int
    ) -> None:
        self._size, self._seed, self._layout = size, seed, layout
        self._rank, self._images = rank, images
        self._orders: dict[int, np.ndarray] = {}

    def __iter__(self) -> Iterator[list[_Place]]:
        micro, world = self._layout.micro_batch, self._layout.data_ranks
        begin = self._images + self._rank * micro
        while True:
            yield [self._place(position) for position in range(begin, begin + micro)]
            begin += micro * world

    def _place(self, position: int) -> _Place:
        epoch, offset = divmod(position, self._size)
        if epoch not in self._orders:
            previous = {old: kept for old, kept in self._orders.items() if old == epoch - 1}
            self._orders = previous | {epoch: epoch_order(self._seed, epoch, self._size)}
        return position, epoch, int(self._orders[epoch][offset])


class LoaderIterator(Iterator[Item]):
    """What a loader loads, until `close` ends its processes.

    They ignore TERM (see `ignore_signals`): left to themselves, a failing rank would wait for
    them for ever when it exits.
    """

    def __init__(self, loader: DataLoader[Item]) -> None:
        self._iterator = iter(loader)

    def __next__(self) -> Item:
        return next(self._iterator)

    def close(self) -> None:
        """End the loader's processes, if it has any."""
        if hasattr(self._iterator, "_shutdown_workers"):
            self._iterator._shutdown_workers()


def microbatches(
    source: Source, config: Pretrain, *, layout: BatchLayout, rank: int, images: int, pin: bool
) -> LoaderIterator[Microbatch]:
    """The microbatches of data rank `rank` after the whole run has seen `images` images."""
    places = MicrobatchSampler(
        size=len(source), seed=config.seed, layout=layout, rank=rank, images=images
    )
    loader = DataLoader(
        MicrobatchDataset(source, config),
        batch_size=None,
        sampler=places,
        num_workers=config.data.workers,
        pin_memory=pin,
        worker_init_fn=ignore_signals if config.data.workers else None,
    )
    return LoaderIterator(loader)


def ignore_signals(worker: int) -> None:
    """Slurm signals every process of a step; only the rank itself may act on it."""
    for name in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)
    torch.set_num_threads(1)
