"""How a shard of a latent store is written: whole or absent, and its record after it."""

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

from configs.disk import replace_file, sync_folder
from train.data.latents.store import Shard

_AT_ONCE = 64


def shard_name(number: int) -> str:
    """The file of a shard, counted from 0."""
    return f"shard-{number:05d}.safetensors"


def record_of(file: Path) -> Path:
    """Where the record of a shard stands."""
    return file.with_suffix(".json")


def write_shard(file: Path, moments: Tensor, labels: list[int], *, skipped: list[str]) -> Shard:
    """Write moments `[n, flips, 1 or 2, C, H, W]` and labels, then their record."""
    # safetensors' own writing reports a full disk as an error of its own, without errno.
    blob = save({"label": np.array(labels, dtype="<i8"), "moments": moments.numpy()})
    sums, squares = _sums(moments)
    # A record of older bytes must not stand beside newer ones.
    record_of(file).unlink(missing_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}.partial")
    with beside.open("wb") as opened:
        opened.write(blob)
        opened.flush()
        os.fsync(opened.fileno())
    beside.replace(file)
    sync_folder(file.parent)
    record = Shard(
        name=file.name,
        examples=len(labels),
        bytes=len(blob),
        sha256=hashlib.sha256(blob).hexdigest(),
        sums=sums.tolist(),
        squares=squares.tolist(),
        skipped=skipped,
    )
    replace_file(record_of(file), record.model_dump_json(indent=1) + "\n")
    return record


def _sums(moments: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per channel the sum of means, and of mean^2 + std^2, in float64."""
    sums, squares = np.zeros((2, moments.shape[3]))
    for some in moments.split(_AT_ONCE):
        wide = some.double()
        sums += wide[:, :, 0].sum(dim=(0, 1, 3, 4)).numpy()
        squares += (wide**2).sum(dim=(0, 1, 2, 4, 5)).numpy()
    return sums, squares
