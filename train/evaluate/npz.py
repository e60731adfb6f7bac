"""Image sets as .npz files in the layout that ADM's evaluators read, streamed in both directions.

`arr_0` is uint8 `[N, H, W, 3]`, `arr_1` holds the int64 labels `[N]`; nothing is pickled. A set is
drawn in shards, one file each, which are joined into the .npz at the end.
"""

import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from configs.disk import replace_file, replacing
from configs.errors import ConfigError
from configs.files import read_bytes

Pixels = NDArray[np.uint8]
Metadata = dict[str, Any]


def write_npz(
    path: Path, images: Iterable[Pixels], *, shape: tuple[int, ...], labels: NDArray[np.int64]
) -> None:
    """Write `images`, which come in parts `[n, H, W, 3]` of an array of `shape`.

    A crash leaves either the whole file or no file. Equal images give equal bytes.
    """
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        with _member(archive, "arr_0", "|u1", shape) as array:
            for part in images:
                array.write(np.ascontiguousarray(part).data)
        with _member(archive, "arr_1", "<i8", labels.shape) as array:
            array.write(labels.astype("<i8").data)


@contextmanager
def _member(
    archive: zipfile.ZipFile, name: str, dtype: str, shape: tuple[int, ...]
) -> Iterator[IO[bytes]]:
    # The default date of ZipInfo is constant, so the bytes do not depend on the time of day.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as array:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(array, header)
        yield array


@dataclass(frozen=True, kw_only=True)
class StoredImages:
    """The images `arr_0` of an .npz, read batch by batch; `shape` is `[N, H, W, C]`."""

    path: Path
    shape: tuple[int, int, int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def batches(self, size: int) -> Iterator[Pixels]:
        """Yield the images in order, `[size, H, W, C]`; the last batch may be smaller."""
        count, *image_shape = self.shape
        image_bytes = int(np.prod(image_shape))
        with zipfile.ZipFile(self.path) as archive, archive.open("arr_0.npy") as array:
            _read_header(array)
            for begin in range(0, count, size):
                n = min(size, count - begin)
                content = array.read(n * image_bytes)
                if len(content) < n * image_bytes:
                    raise ConfigError(f"{self.path}: ends before its last image; draw it again")
                yield np.frombuffer(content, dtype=np.uint8).reshape(n, *image_shape)


def open_images(path: Path) -> StoredImages:
    """Open the images of an .npz. Raise `ConfigError` if it holds none."""
    expected = "expected an .npz with arr_0, uint8 [N, H, W, 3]"
    try:
        with zipfile.ZipFile(path) as archive, archive.open("arr_0.npy") as array:
            shape, fortran, dtype = _read_header(array)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: {expected}: {error}") from None
    if len(shape) != 4 or shape[-1] not in (1, 3) or dtype != np.uint8 or fortran:
        raise ConfigError(f"{path}: {expected}, found {dtype} {list(shape)}")
    count, height, width, channels = shape
    return StoredImages(path=path, shape=(count, height, width, channels))


def _read_header(array: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    if npy.read_magic(array) == (1, 0):
        return npy.read_array_header_1_0(array)
    return npy.read_array_header_2_0(array)


@dataclass(frozen=True, kw_only=True)
class NpzShards:
    """The shards of an image set: `num` images, `size` per shard, to be joined into the file `out`.

    For `out` `images.npz`, the shards are in `images.npz.pieces/` until they are joined, and the
    metadata, which describes the images, is then in `images.json`.
    """

    out: Path
    num: int
    size: int

    @property
    def folder(self) -> Path:
        """The folder of the shards."""
        return self.out.with_name(f"{self.out.name}.pieces")

    @property
    def count(self) -> int:
        """The number of shards."""
        return -(-self.num // self.size)

    def indices(self, shard: int) -> list[int]:
        """Return the indices of the images of a shard."""
        return list(range(shard * self.size, min(self.num, (shard + 1) * self.size)))

    def metadata(self) -> Metadata | None:
        """Return an earlier attempt's metadata, or None."""
        for file in (self._unfinished, metadata_file(self.out)):
            if file.is_file():
                return dict(json.loads(read_bytes(file)))
        return None

    def begin(self, metadata: Metadata) -> None:
        """Create the folder of shards and write the metadata into it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for partial in self.folder.glob(".*"):
            partial.unlink()
        replace_file(self._unfinished, json.dumps(metadata, indent=1) + "\n")

    def is_joined(self) -> bool:
        """Return whether `out` is complete, so that the shards are no longer needed."""
        joined = self.out.exists() and metadata_file(self.out).exists()
        return joined and not self._unfinished.exists()

    def missing(self) -> list[int]:
        """Return the shards that are not written yet."""
        present = {file.name for file in self.folder.iterdir()}
        return [shard for shard in range(self.count) if self._file(shard).name not in present]

    def write(self, shard: int, images: Pixels) -> None:
        """Write the images `[n, H, W, 3]` of a shard; they reach the disk before the rename."""
        with replacing(self._file(shard)) as file:
            np.save(file, images, allow_pickle=False)

    def join(self, labels: NDArray[np.int64]) -> None:
        """Write `out` from all shards, then its metadata, and remove the shards."""
        shape = (self.num, *self._read(0).shape[1:])
        parts = (self._read(shard) for shard in range(self.count))
        write_npz(self.out, parts, shape=shape, labels=labels)
        replace_file(metadata_file(self.out), self._unfinished.read_text(encoding="utf-8"))
        self._unfinished.unlink()
        self.remove()

    def remove(self) -> None:
        """Remove the remaining shards of a finished file."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    @property
    def _unfinished(self) -> Path:
        """The metadata while the set is unfinished."""
        return self.folder / "note.json"

    def _read(self, shard: int) -> Pixels:
        images: Pixels = np.load(self._file(shard), allow_pickle=False)
        return images

    def _file(self, shard: int) -> Path:
        return self.folder / f"{shard:06d}.npy"


def metadata_file(out: Path) -> Path:
    """Return the path of the metadata of a finished .npz."""
    return out.with_suffix(".json")
