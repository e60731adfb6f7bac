"""The protocol of a data set, and its splits into training and held-out examples."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.schema.data import Data
from train.diffusion.rng import Augmentation, dummy_latent, held_out_indices

# Pixels 0..255, or latents and pixels that are not bytes.
Image = NDArray[np.uint8] | NDArray[np.float32]


class Source(Protocol):
    """Examples by index: an image `[C, H, W]` and its label.

    The image is uint8, to which `from_pixels` is applied on the device, or float32 (pixels in
    -1..1, or a latent). All images of a source have the same type.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Image, int]:
        """Return the example without augmentation, the same at every call."""
        ...

    def augmented(self, index: int, augmentation: Augmentation) -> tuple[Image, int]:
        """Return the example with the augmentation of one epoch."""
        image, label = self[index]
        return (image[:, :, ::-1] if augmentation.flip else image), label

    def features(self, index: int, *, flip: bool) -> NDArray[np.float16]:
        """Return the features of an example, `[T, D]`; only a latent store has them."""
        raise TypeError(f"{type(self).__name__} holds no features")


class Subset(Source):
    """The examples of a source with the given indices."""

    def __init__(self, source: Source, indices: NDArray[np.int64]) -> None:
        self._source, self._indices = source, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[Image, int]:
        return self._source[int(self._indices[index])]

    def augmented(self, index: int, augmentation: Augmentation) -> tuple[Image, int]:
        """Return the source's own augmented example."""
        return self._source.augmented(int(self._indices[index]), augmentation)

    def features(self, index: int, *, flip: bool) -> NDArray[np.float16]:
        """Return the source's features."""
        return self._source.features(int(self._indices[index]), flip=flip)


class DummyLatents(Source):
    """Random latents, all different, with labels 0, 1, ... in turn."""

    def __init__(self, *, images: int, shape: tuple[int, int, int], classes: int) -> None:
        self._images, self._shape, self._classes = images, shape, classes

    def __len__(self) -> int:
        return self._images

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return dummy_latent(index, self._shape), index % self._classes


def from_pixels(images: Tensor) -> Tensor:
    """Return uint8 images as float32 in -1..1, and images of another type as they are."""
    if images.dtype != torch.uint8:
        return images
    # Divided by a tensor: by a number, CUDA multiplies with its reciprocal and rounds otherwise.
    return images.float() / torch.full((), 127.5, device=images.device) - 1


def training_split(source: Source, data: Data) -> Subset:
    """Return the examples to train on: all that are not held out."""
    kept = np.setdiff1d(np.arange(len(source)), held_out_indices(len(source), data.held_out))
    return Subset(source, kept)


def held_out_split(source: Source, data: Data) -> Subset:
    """Return the examples that no run trains on."""
    return Subset(source, held_out_indices(len(source), data.held_out))
