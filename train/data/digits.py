"""scikit-learn's handwritten digits: 1,797 real images of 8 x 8 that come with the package."""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from train.data.source import Source


class Digits(Source):
    """The digits as `[1, 8, 8]` in -1..1."""

    def __init__(self) -> None:
        bunch = load_digits()
        self._images = (bunch.images / 8 - 1).astype(np.float32)[:, None]
        self._labels = bunch.target

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return self._images[index], int(self._labels[index])
