"""Checks of a latent store: quick ones before a training run, all of them in `ditbench check`.

Each function returns a list of problems, one line each with its fix; an empty list is a pass.
The latents are checked by reading samples of them, not by trusting the index.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from configs.schema.data import Data
from train.data.latents.dataset import Latents
from train.data.latents.store import INDEX, RERUN, StoreIndex, checksum
from train.data.latents.vae import check_vae

# The first SD VAE gives ImageNet channel means of 0..1.1 and stds of 0.6..0.85 after its scaling,
# 5.8 and 4.6 before (Karras et al. 2024, EDM2): normalised latents pass and others do not.
_STD_RANGE, _MAX_MEAN = (0.3, 3.0), 2.0
QUICK_SAMPLE, _FULL_SAMPLE = 256, 4096


def store_problems(folder: Path, index: StoreIndex, *, fast: bool) -> list[str]:
    """Check a whole store; `fast` compares the sizes of shards, not their checksums."""
    problems = _shard_problems(folder, index, read_all=not fast)
    if problems:
        return problems
    latents = Latents(folder, index)
    return _label_problems(latents) + _latent_problems(latents, _FULL_SAMPLE)


def quick_problems(folder: Path, index: StoreIndex) -> list[str]:
    """Run the checks that take about a second."""
    problems = _shard_problems(folder, index, read_all=False)
    return problems or _latent_problems(Latents(folder, index), QUICK_SAMPLE)


def config_problems(index: StoreIndex, data: Data) -> list[str]:
    """Check that a store fits the `data` section of a config."""
    found = []
    if index.shape != (data.channels, data.size, data.size):
        found.append(
            f"its latents are {' x '.join(map(str, index.shape))}, the config asks for "
            f"{data.channels} x {data.size} x {data.size}: set data.channels and data.size"
        )
    if index.classes > data.classes:
        found.append(f"it has {index.classes} classes, data.classes says {data.classes}: set that")
    if data.flip and index.flips == 1:
        found.append(
            "it holds no encodings of mirrored images: set data.flip false, or encode with "
            "encode.flip true into another folder"
        )
    return found


def vae_problems(index: StoreIndex, *, vae: Path | None) -> list[str]:
    """Check that the VAE that made the latents still exists and is the same."""
    folder = vae or Path(index.vae.path)
    if not folder.exists():
        return [f"its VAE is not at {folder}: samples cannot be decoded; set data.vae (--vae here)"]
    try:
        check_vae(folder, index.vae)
    except DataError as error:
        return [str(error)]
    return []


def sample_indices(count: int, most: int) -> NDArray[np.int64]:
    """Return up to `most` random indices below `count`, sorted; the same at every call."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _shard_problems(folder: Path, index: StoreIndex, *, read_all: bool) -> list[str]:
    problems = []
    examples = sum(entry.examples for entry in index.shards)
    if examples != index.examples:
        problems.append(f"{INDEX} claims {index.examples} examples, its shards {examples}; {RERUN}")
    if not examples:
        problems.append("it holds no examples: encode a folder that has images")
    for entry in index.shards:
        file = folder / entry.name
        try:
            size = file.stat().st_size
            if size != entry.bytes:
                problems.append(f"{entry.name}: {size} bytes instead of {entry.bytes}; {RERUN}")
            elif read_all and checksum(file) != entry.sha256:
                problems.append(f"{entry.name}: its bytes have changed (checksum); {RERUN}")
        except FileNotFoundError:
            problems.append(f"{entry.name}: missing; {RERUN}")
        except OSError as error:
            problems.append(f"{entry.name}: cannot be read: {error.strerror}")
    return problems


def _label_problems(latents: Latents) -> list[str]:
    classes = latents.index.classes
    return [
        f"{name}: labels {min(labels)}..{max(labels)}, beyond the {classes} classes; {RERUN}"
        for name, labels in latents.labels()
        if not 0 <= min(labels) <= max(labels) < classes
    ]


def _latent_problems(latents: Latents, most: int) -> list[str]:
    """Check up to `most` latents: finite and normalised."""
    indices, means, squares, broken = sample_indices(len(latents), most), [], [], 0
    for index in indices:
        moments = latents.moments(int(index))[0].astype(np.float64)
        if not np.isfinite(moments).all():
            broken += 1
            continue
        means.append(moments[0].mean(axis=(1, 2)))
        squares.append((moments**2).sum(axis=0).mean(axis=(1, 2)))
    if broken:
        return [
            f"{broken} of {len(indices)} sampled latents hold NaN or inf; encode with "
            "encode.dtype float32 or encode.precision fp32 into another folder"
        ]
    mean, square = np.mean(means, axis=0), np.mean(squares, axis=0)
    return _scale_problems(mean, np.sqrt(square - mean**2))


def _scale_problems(mean: NDArray[np.float64], std: NDArray[np.float64]) -> list[str]:
    """Check that each channel has the mean and std of normalised latents."""
    bad = [
        f"channel {number} has mean {mean[number]:.3g} and std {std[number]:.3g}"
        for number in range(len(mean))
        if abs(mean[number]) > _MAX_MEAN or not _STD_RANGE[0] <= std[number] <= _STD_RANGE[1]
    ]
    if not bad:
        return []
    low, high = _STD_RANGE
    return [
        f"its latents are not normalised: {', '.join(bad)} (expected means within {_MAX_MEAN:g} of "
        f"0 and stds of {low:g}..{high:g}); set scaling_factor and shift_factor, or latents_mean "
        "and latents_std, in the VAE's config.json and encode into another folder"
    ]
