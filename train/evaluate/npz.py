"""Images in an .npz as the evaluators of ADM read it, written and read without holding them all.

`arr_0` uint8 `[N, H, W, 3]`, `arr_1` int64 labels `[N]`; nothing in it is pickled.
"""

import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from configs.disk import sync_folder
from configs.errors import ConfigError

Pixels = NDArray[np.uint8]


def write_npz(
    path: Path, images: Iterable[Pixels], *, shape: tuple[int, ...], labels: NDArray[np.int64]
) -> None:
    """Write `images`, parts `[n, H, W, 3]` of an array of `shape`; a crash leaves all or nothing.

    Equal images make equal files.
    """
    beside = path.with_name(f".{path.name}.partial")
    with beside.open("wb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            with _member(archive, "arr_0", "|u1", shape) as array:
                for part in images:
                    array.write(np.ascontiguousarray(part).data)
            with _member(archive, "arr_1", "<i8", labels.shape) as array:
                array.write(labels.astype("<i8").data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


@contextmanager
def _member(
    archive: zipfile.ZipFile, name: str, dtype: str, shape: tuple[int, ...]
) -> Iterator[IO[bytes]]:
    # ZipInfo's own date is fixed, so that the bytes do not depend on the time of day.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as array:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(array, header)
        yield array


@dataclass(frozen=True, kw_only=True)
class StoredImages:
    """The images `arr_0` of an .npz, read a batch at a time; `shape` is `[N, H, W, C]`."""

    path: Path
    shape: tuple[int, int, int, int]

    def batches(self, size: int) -> Iterator[Pixels]:
        """The images in order, `[size, H, W, C]` but for the last."""
        count, *of_one = self.shape
        with zipfile.ZipFile(self.path) as archive, archive.open("arr_0.npy") as array:
            _header(array)
            for begin in range(0, count, size):
                here = min(size, count - begin)
                read = array.read(here * int(np.prod(of_one)))
                if len(read) < here * int(np.prod(of_one)):
                    raise ConfigError(f"{self.path}: ends before its last image; make it anew")
                yield np.frombuffer(read, dtype=np.uint8).reshape(here, *of_one)


def open_images(path: Path) -> StoredImages:
    """The images of an .npz; `ConfigError` where it holds none."""
    expected = "expected an .npz with arr_0, uint8 [N, H, W, 3]"
    try:
        with zipfile.ZipFile(path) as archive, archive.open("arr_0.npy") as array:
            shape, fortran, dtype = _header(array)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: {expected}: {error}") from None
    if len(shape) != 4 or shape[-1] not in (1, 3) or dtype != np.uint8 or fortran:
        raise ConfigError(f"{path}: {expected}, found {dtype} {list(shape)}")
    count, high, wide, channels = shape
    return StoredImages(path=path, shape=(count, high, wide, channels))


def _header(array: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    if npy.read_magic(array) == (1, 0):
        return npy.read_array_header_1_0(array)
    return npy.read_array_header_2_0(array)
