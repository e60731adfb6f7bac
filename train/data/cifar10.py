"""CIFAR-10 in its two published forms: binary batches and pickled batches.

The pickled batches are read opcode by opcode, without unpickling: no code in them runs.
"""

import pickletools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from configs.files import read_bytes
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
    """Return the training set in `path`, in either of its forms."""
    for folder in (path, path / "cifar-10-batches-bin", path / "cifar-10-batches-py"):
        for suffix, read in ((".bin", _read_binary), ("", _read_pickled)):
            files = [folder / f"data_batch_{number}{suffix}" for number in _BATCHES]
            present = [file for file in files if file.is_file()]
            if present and present != files:
                missing = next(file for file in files if file not in present)
                raise DataError(f"{missing}: missing; CIFAR-10 has five training batches")
            if present:
                batches = [read(file) for file in files]
                return Cifar10(*(np.concatenate(part) for part in zip(*batches, strict=True)))
    raise DataError(
        f"{path}: neither data_batch_1.bin nor data_batch_1 is there; set data.path to the folder "
        "that holds one of them, or read PNG files by data.source folder"
    )


def _read_binary(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read rows of one label byte and 3,072 pixel bytes."""
    values = np.fromfile(file, dtype=np.uint8)
    if values.size == 0 or values.size % (_PIXELS + 1):
        raise DataError(f"{file}: {values.size} bytes are not whole images of {_PIXELS + 1}")
    rows = values.reshape(-1, _PIXELS + 1)
    return rows[:, 1:], _check_labels(rows[:, 0].astype(np.int64), len(rows), file)


def _read_pickled(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read a pickled dict with `data`, an array of bytes, and `labels`, a list of integers."""
    pixels, labels, in_labels = b"", list[int](), False
    try:
        for opcode, argument, _ in pickletools.genops(read_bytes(file)):
            if isinstance(argument, (str, bytes)):
                raw = argument.encode("latin-1") if isinstance(argument, str) else argument
                pixels = max(pixels, raw, key=len)
                in_labels = raw == b"labels"
            elif in_labels and opcode.name in ("BININT1", "BININT2", "BININT", "INT"):
                labels.append(int(argument or 0))
            elif in_labels and opcode.name not in ("BINPUT", "LONG_BINPUT", "EMPTY_LIST", "MARK",
                                                   "APPENDS", "MEMOIZE"):  # fmt: skip
                in_labels = False
    except (ValueError, IndexError) as error:
        raise DataError(f"{file}: not a CIFAR-10 batch: {error}") from None
    if not pixels or len(pixels) % _PIXELS:
        raise DataError(f"{file}: not a CIFAR-10 batch: {len(pixels)} bytes of pixels")
    rows = np.frombuffer(pixels, dtype=np.uint8).reshape(-1, _PIXELS)
    return rows, _check_labels(np.array(labels, dtype=np.int64), len(rows), file)


def _check_labels(labels: NDArray[np.int64], images: int, file: Path) -> NDArray[np.int64]:
    if len(labels) != images or labels.min(initial=0) < 0 or labels.max(initial=0) > 9:
        raise DataError(f"{file}: {images} images but {len(labels)} labels, or labels beyond 0..9")
    return labels
