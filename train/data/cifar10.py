"""CIFAR-10 in its binary form, whose batches are plain bytes: nothing is unpickled."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from train.data.source import Source

_PIXELS = 3 * 32 * 32
_BATCHES = range(1, 6)


class Cifar10(Source):
    """The 50,000 training images, `[3, 32, 32]` uint8."""

    def __init__(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self._pixels, self._labels = pixels, labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        return self._pixels[index].reshape(3, 32, 32), int(self._labels[index])


def open_cifar10(path: Path) -> Source:
    """Return the training set in `path`, or in the folder of its archive there."""
    for folder in (path, path / "cifar-10-batches-bin"):
        files = [folder / f"data_batch_{number}.bin" for number in _BATCHES]
        missing = [file for file in files if not file.is_file()]
        if not missing:
            batches = [_read(file) for file in files]
            return Cifar10(*(np.concatenate(part) for part in zip(*batches, strict=True)))
        if len(missing) < len(files):
            raise DataError(f"{missing[0]}: missing; CIFAR-10 has five training batches")
    raise DataError(
        f"{path}: data_batch_1.bin is not there; unpack cifar-10-binary.tar.gz into data.path (the "
        "archive for Python is not read), or read PNG files by data.source folder"
    )


def _read(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read rows of one label byte and 3,072 pixel bytes."""
    values = np.fromfile(file, dtype=np.uint8)
    if values.size == 0 or values.size % (_PIXELS + 1):
        raise DataError(f"{file}: {values.size} bytes are not whole images of {_PIXELS + 1}")
    rows = values.reshape(-1, _PIXELS + 1)
    labels = rows[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise DataError(f"{file}: labels beyond 0..9")
    return rows[:, 1:], labels
