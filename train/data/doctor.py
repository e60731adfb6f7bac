"""What is wrong with a latent store or an image folder, and how to mend it.

    python -m train doctor STORE [--vae FOLDER] [--fast]
    python -m train doctor IMAGES [--labels CSV] [--fast]

Latents are judged by samples of their bytes, not by what the index says of them.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from train.data.folder import ImageFolder, list_images
from train.data.latents.dataset import Latents
from train.data.latents.store import AGAIN, ENCODING, INDEX, Index, checksum, read_index
from train.data.latents.vae import check_vae

# The first SD VAE gives ImageNet channel means of 0..1.1 and stds of 0.6..0.85 after its scaling,
# 5.8 and 4.6 before (Karras et al. 2024, EDM2): normalised latents pass and others do not.
_STDS, _MEAN = (0.3, 3.0), 2.0
_FEW, _MANY = 256, 4096
# Data sets have doubles; where half of a sample is doubles, the set is not what it claims.
_DISTINCT = 0.5


def main(arguments: list[str]) -> int:
    """Examine what the command line names; 0 where it is sound, 1 where it is not."""
    parser = argparse.ArgumentParser(
        prog="python -m train doctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, help="latent store or image folder")
    parser.add_argument("--vae", type=Path, help="where the VAE is now, if not where it was")
    parser.add_argument("--labels", type=Path, help="csv of labels of a flat image folder")
    parser.add_argument("--fast", action="store_true", help="sizes and samples, not every byte")
    options = parser.parse_args(arguments)
    problems, remarks = [], []
    try:
        if any((options.path / name).is_file() for name in (INDEX, ENCODING)):
            index = read_index(options.path)
            problems = store_problems(options.path, index, fast=options.fast)
            problems += vae_problems(index, vae=options.vae)
            remarks = [_summary(index)]
        else:
            problems = folder_problems(options.path, labels=options.labels, fast=options.fast)
    except DataError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"{options.path}: {problem}")
    for remark in remarks:
        print(remark, file=sys.stderr)
    if not problems:
        print(f"{options.path}: sound{' (not every byte was read)' if options.fast else ''}")
    return 1 if problems else 0


def store_problems(folder: Path, index: Index, *, fast: bool) -> list[str]:
    """All that is wrong with a store; `fast` trusts bytes of shards that have the right size."""
    problems = _shard_problems(folder, index, read_all=not fast)
    if problems:
        return problems
    latents = Latents(folder, index)
    return _label_problems(latents) + _latent_problems(latents, _MANY)


def cheap_problems(folder: Path, index: Index) -> list[str]:
    """What is wrong with a store as far as a second shows it: run before every training."""
    problems = _shard_problems(folder, index, read_all=False)
    return problems or _latent_problems(Latents(folder, index), _FEW)


def vae_problems(index: Index, *, vae: Path | None) -> list[str]:
    """Whether the VAE that made the latents is still there and the same."""
    folder = vae or Path(index.vae.path)
    if not folder.exists():
        return [f"its VAE is not at {folder}: samples cannot be decoded; set data.vae (--vae here)"]
    try:
        check_vae(folder, index.vae)
    except DataError as error:
        return [str(error)]
    return []


def folder_problems(folder: Path, *, labels: Path | None, fast: bool) -> list[str]:
    """What is wrong with an image folder; `fast` opens a sample of its files."""
    if not folder.is_dir():
        return ["no such folder"]
    listing = list_images(folder, labels=labels)
    count = len(listing.files)
    images = ImageFolder(listing, size=32, channels=3, classes=len(listing.names))
    problems = []
    for number in _chosen(count, _FEW) if fast else range(count):
        try:
            images[int(number)]
        except DataError as error:
            problems.append(f"{error}; replace or remove it, or encode with encode.skip_bad true")
    files = (listing.files[int(number)] for number in _chosen(count, _FEW))
    problems += _repeats((checksum(file) for file in files if file.is_file()), claimed=count)
    return problems


def _shard_problems(folder: Path, index: Index, *, read_all: bool) -> list[str]:
    problems = []
    held = sum(entry.examples for entry in index.shards)
    if held != index.examples:
        problems.append(f"{INDEX} claims {index.examples} examples, its shards {held}; {AGAIN}")
    if not held:
        problems.append("it holds no examples: encode a folder that has images")
    for entry in index.shards:
        file = folder / entry.name
        try:
            size = file.stat().st_size
            if size != entry.bytes:
                problems.append(f"{entry.name}: {size} bytes instead of {entry.bytes}; {AGAIN}")
            elif read_all and checksum(file) != entry.sha256:
                problems.append(f"{entry.name}: its bytes have changed (checksum); {AGAIN}")
        except FileNotFoundError:
            problems.append(f"{entry.name}: missing; {AGAIN}")
        except OSError as error:
            problems.append(f"{entry.name}: cannot be read: {error.strerror}")
    return problems


def _label_problems(latents: Latents) -> list[str]:
    classes = latents.index.classes
    return [
        f"{name}: labels {min(labels)}..{max(labels)}, beyond the {classes} classes; {AGAIN}"
        for name, labels in latents.labels()
        if not 0 <= min(labels) <= max(labels) < classes
    ]


def _latent_problems(latents: Latents, most: int) -> list[str]:
    """What a sample of the latents shows: not finite, not normalised, or always the same."""
    digests, means, squares, broken = [], [], [], 0
    for number in _chosen(len(latents), most):
        moments = latents.moments(int(number))[0].astype(np.float64)
        digests.append(hashlib.sha256(moments.tobytes()).hexdigest())
        if not np.isfinite(moments).all():
            broken += 1
            continue
        means.append(moments[0].mean(axis=(1, 2)))
        squares.append((moments**2).sum(axis=0).mean(axis=(1, 2)))
    if broken:
        return [
            f"{broken} of {len(digests)} sampled latents hold NaN or inf; encode with "
            "encode.dtype float32 or encode.precision fp32 into another folder"
        ]
    mean, square = np.mean(means, axis=0), np.mean(squares, axis=0)
    return _scale_problems(mean, np.sqrt(square - mean**2)) + _repeats(
        digests, claimed=len(latents)
    )


def _scale_problems(mean: NDArray[np.float64], std: NDArray[np.float64]) -> list[str]:
    """Whether mean and std of each channel are those of normalised latents."""
    bad = [
        f"channel {number} has mean {mean[number]:.3g} and std {std[number]:.3g}"
        for number in range(len(mean))
        if abs(mean[number]) > _MEAN or not _STDS[0] <= std[number] <= _STDS[1]
    ]
    if not bad:
        return []
    return [
        f"its latents are not normalised: {', '.join(bad)} (expected means within {_MEAN:g} of 0 "
        f"and stds of {_STDS[0]:g}..{_STDS[1]:g}); set scaling_factor and shift_factor, or "
        "latents_mean and latents_std, in the VAE's config.json and encode into another folder"
    ]


def _repeats(digests: Iterable[str], *, claimed: int) -> list[str]:
    """Whether a sample of a set that claims `claimed` examples is mostly doubles."""
    every = list(digests)
    distinct = len(set(every))
    if distinct > _DISTINCT * len(every) or len(every) < 2:
        return []
    return [
        f"only {distinct} of {len(every)} sampled examples are distinct: far fewer than the "
        f"{claimed} it claims; give it the whole data set"
    ]


def _chosen(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of `count` examples, spread by chance but the same at every call."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _summary(index: Index) -> str:
    shape = " x ".join(map(str, index.shape))
    flips = ", mirrored too" if index.flips == 2 else ""
    return (
        f"{index.examples} latents of {shape} {index.dtype}{flips}, {index.classes} classes, "
        f"{len(index.shards)} shards, by {index.vae.name} at {index.precision}; "
        f"{index.images.skipped} of {index.images.listed} images skipped"
    )
