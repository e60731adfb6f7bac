"""The files of a latent store: an index, shards, and a record beside each shard.

STORE/encoding.json             the settings; a rerun continues only with the same ones
STORE/shard-00000.safetensors   `moments` [n, flips, 2, C, H, W] and `label` [n],
                                and `features` [n, flips, T, D] float16 if they are encoded
STORE/shard-00000.json          the shard's size and checksum, written after it
STORE/index.json                the index, written last: a store without it is not finished

No file is pickled. A file that cannot be read raises a `DataError` that names it.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.numpy import save
from torch import Tensor

from configs.disk import read_safetensors_header, replace_file
from configs.errors import ConfigError, DataError
from configs.files import open_regular, read_bytes

INDEX, ENCODING = "index.json", "encoding.json"
_SAFETENSORS_DTYPES = {"float16": "F16", "float32": "F32"}
RERUN = "run jobs/encode.sbatch again: it makes only what is missing or damaged"
_Model = TypeVar("_Model", bound="StoreModel")


class StoreModel(BaseModel):
    """A JSON file of a store, or an object in one; older stores have statistics, too."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class ShardEntry(StoreModel):
    """A shard in the index, and in the record beside it."""

    name: str
    examples: int
    bytes: int
    sha256: str


class VaeFacts(StoreModel):
    """The VAE that made the latents; `sha256` covers its config and weights."""

    name: str
    path: str
    sha256: str
    config: dict[str, Any]


class FeatureFacts(StoreModel):
    """The encoder of the features; `shape` is features per image and channels of each."""

    path: str
    sha256: str
    shape: tuple[int, int]


class ImageFacts(StoreModel):
    """The images that were encoded; `sha256` covers their names and labels, in order."""

    path: str
    listed: int
    size: int
    sha256: str


class StoreIndex(StoreModel):
    """The index of a finished store.

    A stored latent is `(z - shift) * scale` of the VAE's own z, both per channel.
    """

    format: Literal[1]
    examples: int
    shape: tuple[int, int, int]
    dtype: Literal["float16", "float32"]
    precision: Literal["fp32", "tf32", "bf16"]
    flips: Literal[1, 2]
    classes: int
    names: list[str]
    scale: list[float]
    shift: list[float]
    vae: VaeFacts
    features: FeatureFacts | None = None
    images: ImageFacts
    shards: list[ShardEntry]


def read_index(folder: Path) -> StoreIndex:
    """Return the index of a store. Raise `DataError` if it is missing or cannot be read."""
    if not (folder / INDEX).is_file():
        unfinished = (folder / ENCODING).is_file()
        fix = RERUN if unfinished else "name the folder that jobs/encode.sbatch wrote"
        raise DataError(f"{folder}: no {INDEX}, so not a finished latent store; {fix}")
    return read_json(folder / INDEX, StoreIndex)


def read_json(file: Path, kind: type[_Model]) -> _Model:
    """Return the object in a JSON file. Raise `DataError` if it is not a valid `kind`."""
    try:
        return kind.model_validate_json(read_bytes(file))
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{file}: {where or 'the file'}: {first['msg']}; {RERUN}") from None


class ShardFile:
    """A shard that is open for reading.

    Examples are read, not mapped: if a mapped file is truncated, SIGBUS kills the process, while a
    read returns fewer bytes.
    """

    def __init__(self, file: Path, entry: ShardEntry, index: StoreIndex) -> None:
        try:
            tensors = read_safetensors_header(file, fix=RERUN).tensors
        except ConfigError as error:
            raise DataError(str(error)) from None
        moments, label = tensors.get("moments"), tensors.get("label")
        shape = (entry.examples, index.flips, 2, *index.shape)
        dtype = _SAFETENSORS_DTYPES[index.dtype]
        if moments is None or (moments.dtype, moments.shape) != (dtype, shape):
            raise DataError(f"{file}: its moments are {moments}, the index says {shape}; {RERUN}")
        if label is None or (label.dtype, label.shape) != ("I64", (entry.examples,)):
            raise DataError(f"{file}: its labels are {label}, not {entry.examples} I64; {RERUN}")
        self._file, self._begin, self._flips = file, moments.begin, index.flips
        self._stride = (moments.end - moments.begin) // max(1, entry.examples * index.flips)
        features = tensors.get("features")
        if index.features is not None:
            expected = (entry.examples, index.flips, *index.features.shape)
            if features is None or (features.dtype, features.shape) != ("F16", expected):
                raise DataError(f"{file}: its features are {features}, not {expected} F16; {RERUN}")
            self._features_begin = features.begin
        self._handle = os.open(file, os.O_RDONLY)
        labels = np.empty(entry.examples, dtype="<i8")
        self._read(labels.data, label.begin)
        self.labels: list[int] = labels.tolist()

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def read(self, position: int, *, flip: bool, into: memoryview) -> None:
        """Fill `into` with the moments of one example, the mean first."""
        self._read(into, self._begin + (position * self._flips + flip) * self._stride)

    def read_features(self, position: int, *, flip: bool, into: memoryview) -> None:
        """Fill `into` with the features of one example, `[T, D]` in float16."""
        example = position * self._flips + flip
        self._read(into, self._features_begin + example * into.nbytes)

    def _read(self, into: memoryview, begin: int) -> None:
        if os.preadv(self._handle, [into], begin) != into.nbytes:
            raise DataError(f"{self._file}: ends before byte {begin + into.nbytes}; {RERUN}")


def shard_name(number: int) -> str:
    """Return the file name of a shard, counted from 0."""
    return f"shard-{number:05d}.safetensors"


def record_path(file: Path) -> Path:
    """Return the path of a shard's record."""
    return file.with_suffix(".json")


def write_shard(file: Path, tensors: dict[str, Tensor], labels: list[int]) -> ShardEntry:
    """Write `moments` `[n, flips, 2, C, H, W]`, any other tensors and labels, then the record.

    A crash leaves no shard that looks complete: the record is written last.
    """
    # Not written by safetensors itself: its error for a full disk has no errno.
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    blob = save({"label": np.array(labels, dtype="<i8"), **arrays})
    # No record of an older file may remain beside the new one.
    record_path(file).unlink(missing_ok=True)
    replace_file(file, blob)
    record = ShardEntry(
        name=file.name,
        examples=len(labels),
        bytes=len(blob),
        sha256=hashlib.sha256(blob).hexdigest(),
    )
    replace_file(record_path(file), record.model_dump_json(indent=1) + "\n")
    return record


def checksum(*files: Path) -> str:
    """Return the SHA-256 of the contents of files, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with open_regular(file, most=2**50) as opened:
            hashlib.file_digest(opened, lambda: digest)
    return digest.hexdigest()
