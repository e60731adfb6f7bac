"""The files of a latent store: its index, its shards, and the record that stands beside each.

STORE/encoding.json             what was asked: a rerun goes on only with the same
STORE/shard-00000.safetensors   `moments` [n, flips, 1 or 2, C, H, W] and `label` [n]
STORE/shard-00000.json          the shard's size, checksum and sums, written after it
STORE/index.json                the whole, written last: without it the store is not finished

None of them is pickled, and whatever cannot be read is a `DataError` that names the file.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from configs.disk import read_safetensors_header
from configs.errors import ConfigError, DataError

INDEX, ENCODING = "index.json", "encoding.json"
DTYPES = {"float16": "F16", "float32": "F32"}
RERUN = "run jobs/encode.sbatch again: it makes only what is missing or damaged"
_Read = TypeVar("_Read", bound="StoreModel")


class StoreModel(BaseModel):
    """A JSON file of a store, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Shard(StoreModel):
    """A shard as its record says. Sums are per channel, over positions, flips and examples.

    `sums` adds up the latents, `squares` the expected square of a draw, mean^2 + std^2.
    """

    name: str
    examples: int
    bytes: int
    sha256: str
    sums: list[float]
    squares: list[float]
    skipped: list[str] = []


class ShardEntry(StoreModel):
    """A shard as the index names it."""

    name: str
    examples: int
    bytes: int
    sha256: str


class VaeFacts(StoreModel):
    """Which VAE made the latents; `sha256` is over its config and weights."""

    name: str
    path: str
    sha256: str
    config: dict[str, Any]


class ImageFacts(StoreModel):
    """Which images were encoded; `sha256` is over their names and labels, in order."""

    path: str
    listed: int
    skipped: int
    size: int
    channels: int
    sha256: str


class Index(StoreModel):
    """What a finished store holds.

    A stored latent is `(z - shift) * scale` of the VAE's own z; `mean` and `std` are those of
    the stored latents over the whole set. All four are per channel.
    """

    format: Literal[1]
    examples: int
    shape: tuple[int, int, int]
    dtype: Literal["float16", "float32"]
    precision: Literal["fp32", "bf16"]
    flips: Literal[1, 2]
    moments: Literal[1, 2]
    classes: int
    names: list[str]
    mean: list[float]
    std: list[float]
    scale: list[float]
    shift: list[float]
    vae: VaeFacts
    images: ImageFacts
    shards: list[ShardEntry]


def read_index(folder: Path) -> Index:
    """The index of a store; `DataError` where there is none, or not a whole one."""
    if not (folder / INDEX).is_file():
        unfinished = (folder / ENCODING).is_file()
        mend = RERUN if unfinished else "name the folder that jobs/encode.sbatch wrote"
        raise DataError(f"{folder}: no {INDEX}, so not a finished latent store; {mend}")
    return read_part(folder / INDEX, Index)


def read_part(file: Path, kind: type[_Read]) -> _Read:
    """A JSON file of a store; `DataError` where it cannot be read or says something else."""
    try:
        return kind.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{file}: {where or 'the file'}: {first['msg']}; {RERUN}") from None


class ShardFile:
    """One shard, open for reading; examples are read by position, never mapped.

    A mapped file that is cut short ends the process with SIGBUS, where a read says so.
    """

    def __init__(self, file: Path, entry: ShardEntry, index: Index) -> None:
        try:
            tensors = read_safetensors_header(file, fix=RERUN).tensors
        except ConfigError as error:
            raise DataError(str(error)) from None
        moments, label = tensors.get("moments"), tensors.get("label")
        shape = (entry.examples, index.flips, index.moments, *index.shape)
        if moments is None or (moments.dtype, moments.shape) != (DTYPES[index.dtype], shape):
            raise DataError(f"{file}: its moments are {moments}, the index says {shape}; {RERUN}")
        if label is None or (label.dtype, label.shape) != ("I64", (entry.examples,)):
            raise DataError(f"{file}: its labels are {label}, not {entry.examples} I64; {RERUN}")
        self._file, self._begin, self._flips = file, moments.begin, index.flips
        self._each = (moments.end - moments.begin) // max(1, entry.examples * index.flips)
        self._handle = os.open(file, os.O_RDONLY)
        labels = np.empty(entry.examples, dtype="<i8")
        self._read(labels.data, label.begin)
        self.labels: list[int] = labels.tolist()

    def close(self) -> None:
        """Give the file back."""
        os.close(self._handle)

    def read(self, place: int, *, flip: bool, into: memoryview) -> None:
        """Fill `into` from the moments of one encoding, the mean first."""
        self._read(into, self._begin + (place * self._flips + flip) * self._each)

    def _read(self, into: memoryview, begin: int) -> None:
        if os.preadv(self._handle, [into], begin) != into.nbytes:
            raise DataError(f"{self._file}: ends before byte {begin + into.nbytes}; {RERUN}")


def checksum(*files: Path) -> str:
    """SHA-256 over the contents of files, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while block := opened.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
