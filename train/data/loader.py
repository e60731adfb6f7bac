"""Load the microbatches of a rank, as a pure function of the config and of images already seen."""

import functools
import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.data.source import Image, Source, from_pixels
from train.diffusion.rng import Augmentation, epoch_order, example_randomness, kept_patches

Item = TypeVar("Item")
_Key = tuple[int, int]  # epoch, index in the data set


@dataclass(frozen=True, kw_only=True)
class Microbatch:
    """One microbatch: `image`, `noise` `[m, C, H, W]`; `t` `[m]` float32; `label` `[m]` int64.

    Until `to`, `image` may be uint8, a quarter of the bytes to pass between processes and devices.
    The routed blocks read the patches `keep` `[m, K]` int64, or all if it is None. With `features`
    `[m, T, D]` float16, a block is aligned with them (`repa`).
    """

    image: Tensor
    noise: Tensor
    t: Tensor
    label: Tensor
    keep: Tensor | None = None
    features: Tensor | None = None

    def to(self, device: torch.device) -> "Microbatch":
        """Copy the batch to `device`, from pinned memory asynchronously; pixels become float32."""
        copy = self._map(lambda tensor: tensor.to(device, non_blocking=True))
        return replace(copy, image=from_pixels(copy.image))

    def pin_memory(self) -> "Microbatch":
        """Copy the batch to page-locked memory; `DataLoader` calls this."""
        return self._map(Tensor.pin_memory)

    def _map(self, function: Callable[[Tensor], Tensor]) -> "Microbatch":
        mapped: dict[str, Any]
        mapped = {name: function(x) for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **mapped)


class MicrobatchDataset(Dataset[Microbatch]):
    """Makes whole microbatches: examples with their noise, time, augmentation and dropped label."""

    def __init__(self, source: Source, config: Pretrain) -> None:
        self._source, self._config = source, config

    def __getitem__(self, keys: list[_Key]) -> Microbatch:
        config = self._config
        seed, shape = config.seed, (config.data.channels, config.data.size, config.data.size)
        # Filled in place: stacking small arrays takes as long as reading them.
        noises = np.empty((len(keys), *shape), dtype=np.float32)
        images: Image | None = None
        times, labels, features = [], [], []
        for number, (epoch, index) in enumerate(keys):
            random = example_randomness(seed, epoch, index, shape=shape, objective=config.objective)
            flip = config.data.flip and random.flip
            augmentation = Augmentation(flip=flip, seed=seed, epoch=epoch, index=index)
            image, label = self._source.augmented(index, augmentation)
            if images is None:
                images = np.empty((len(keys), *shape), dtype=image.dtype)
            images[number] = image
            noises[number] = random.noise
            times.append(random.t)
            labels.append(config.data.classes if random.drop_label else label)
            if config.repa.weight:
                features.append(self._source.features(index, flip=flip))
        return Microbatch(
            image=torch.from_numpy(images),
            noise=torch.from_numpy(noises),
            t=torch.tensor(times, dtype=torch.float32),
            label=torch.tensor(labels),
            keep=self._kept(keys),
            features=torch.from_numpy(np.stack(features)) if features else None,
        )

    def _kept(self, keys: list[_Key]) -> Tensor | None:
        """Return the patches that the routed blocks read, `[m, K]`; None if that is all."""
        routing, data = self._config.model.routing, self._config.data
        if routing.kind == "none":
            return None
        patches = (data.size // self._config.model.patch) ** 2
        draw = functools.partial(kept_patches, of=patches, count=routing.kept(patches))
        return torch.from_numpy(np.stack([draw(self._config.seed, *key) for key in keys]))


class LoaderIterator(Iterator[Item]):
    """Iterates over a loader until `close` stops its worker processes.

    The workers ignore SIGTERM (see `ignore_signals`), so a failing rank that did not close them
    would wait for them forever at its exit.
    """

    def __init__(self, loader: DataLoader[Item]) -> None:
        self._iterator = iter(loader)

    def __next__(self) -> Item:
        return next(self._iterator)

    def close(self) -> None:
        """Stop the worker processes, if there are any."""
        if hasattr(self._iterator, "_shutdown_workers"):
            self._iterator._shutdown_workers()


def microbatches(
    source: Source, config: Pretrain, *, layout: BatchLayout, rank: int, images: int, pin: bool
) -> LoaderIterator[Microbatch]:
    """Return the microbatches of data rank `rank` after the whole run has seen `images` images."""
    loader = DataLoader(
        MicrobatchDataset(source, config),
        batch_size=None,
        sampler=_microbatch_keys(
            size=len(source), seed=config.seed, layout=layout, rank=rank, images=images
        ),
        num_workers=config.data.workers,
        pin_memory=pin,
        worker_init_fn=ignore_signals if config.data.workers else None,
    )
    return LoaderIterator(loader)


def _microbatch_keys(
    *, size: int, seed: int, layout: BatchLayout, rank: int, images: int
) -> Iterator[list[_Key]]:
    """Yield the keys of the examples of each microbatch of a rank, without end."""

    # A microbatch can span two epochs.
    @functools.lru_cache(maxsize=2)
    def order(epoch: int) -> NDArray[np.int64]:
        return epoch_order(seed, epoch, size)

    def key(position: int) -> _Key:
        epoch, offset = divmod(position, size)
        return epoch, int(order(epoch)[offset])

    micro = layout.micro_batch
    for begin in itertools.count(images + rank * micro, micro * layout.data_ranks):
        yield [key(position) for position in range(begin, begin + micro)]


def ignore_signals(worker: int) -> None:
    """Ignore the signals that Slurm sends to every process of a step: the rank handles them."""
    for name in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)
    torch.set_num_threads(1)
