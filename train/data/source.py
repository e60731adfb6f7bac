"""A data set as the loader sees it, and the choice among those that a config can name."""

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from configs.schema.data import Data
from train.diffusion.rng import Augmentation, dummy_latent, held_out_indices


class Source(Protocol):
    """Examples by number: an image `[C, H, W]` float32 in -1..1 (or a latent) and its label."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        """The example as it is, the same at every call."""
        ...

    def augmented(self, index: int, variant: Augmentation) -> tuple[NDArray[np.float32], int]:
        """The example in the variant that chance has chosen."""
        image, label = self[index]
        return (image[:, :, ::-1] if variant.flip else image), label


class Subset(Source):
    """The examples of a source with the given numbers."""

    def __init__(self, source: Source, numbers: NDArray[np.int64]) -> None:
        self._source, self._numbers = source, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return self._source[int(self._numbers[index])]

    def augmented(self, index: int, variant: Augmentation) -> tuple[NDArray[np.float32], int]:
        """The source's own drawing."""
        return self._source.augmented(int(self._numbers[index]), variant)


class Dummy(Source):
    """Random latents, every one different; labels go round."""

    def __init__(self, *, images: int, shape: tuple[int, int, int], classes: int) -> None:
        self._images, self._shape, self._classes = images, shape, classes

    def __len__(self) -> int:
        return self._images

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return dummy_latent(index, self._shape), index % self._classes


def open_source(data: Data) -> Source:
    """The whole data set of a config; `DataError` where it is missing, broken or another."""
    source = _open(data)
    if len(source) == 0:
        raise DataError(f"{data.path}: holds no images")
    image, _ = source[0]
    expected = (data.channels, data.size, data.size)
    if image.shape != expected:
        raise DataError(
            f"data.source {data.source} has images of {image.shape[0]} x {image.shape[1]} x "
            f"{image.shape[2]}, the config asks for {data.channels} x {data.size} x {data.size}: "
            "set data.channels and data.size"
        )
    return source


def training_split(source: Source, data: Data) -> Subset:
    """What is trained on: all but what is held out."""
    kept = np.setdiff1d(np.arange(len(source)), held_out_indices(len(source), data.held_out))
    return Subset(source, kept)


def held_out_split(source: Source, data: Data) -> Subset:
    """What is never trained on."""
    return Subset(source, held_out_indices(len(source), data.held_out))


def _open(data: Data) -> Source:
    # Imported where chosen: scikit-learn and Pillow cost start-up that other sources do not need.
    if data.source == "dummy":
        shape = (data.channels, data.size, data.size)
        return Dummy(images=data.images, shape=shape, classes=data.classes)
    if data.source == "digits":
        from train.data.digits import Digits

        return Digits()
    assert data.path is not None
    path = Path(data.path)
    if not path.is_dir():
        raise DataError(f"data.path {path}: no such folder")
    if data.source == "latents":
        from train.data.latents.dataset import open_latents

        return open_latents(data)
    labels = Path(data.labels) if data.labels else None
    if data.source == "cifar10":
        from train.data.cifar10 import open_cifar10

        return open_cifar10(path, labels=labels)
    from train.data.folder import ImageFolder, list_images

    listed = list_images(path, labels=labels)
    return ImageFolder(listed, size=data.size, channels=data.channels, classes=data.classes)
