"""What samples are compared with: images, a run's own data, or statistics kept of them."""

import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs.disk import IMAGE_SUFFIXES
from configs.errors import ConfigError
from configs.load import expect, to_tree
from configs.run.folder import RunFolder, is_run
from configs.schema import Pretrain
from train.data.catalog import open_source
from train.data.folder import ImageFolder, Listing
from train.data.latents.store import read_index
from train.data.source import Source, training_split
from train.evaluate.drawing import pixels_of
from train.evaluate.fid_features import Features, Statistics, statistics
from train.evaluate.npz import Pixels, StoredImages, open_images

# Together with mu and sigma; a cache of older images or of another network is not taken.
_MARKS = ("features_sha256", "images")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A set of images; `marks` changes when they do, and `cache` is where statistics are kept."""

    images: StoredImages | Source
    marks: str
    cache: Path


def reference_statistics(path: Path, features: Features, *, side: int, batch: int) -> Statistics:
    """Statistics of the reference at `path`, its images cropped and scaled to `side` pixels.

    An .npz of `mu` and `sigma` is taken as it is. An .npz of images, a folder of them or the
    training data of a run is read once, and what is found is kept beside it. `ConfigError` or
    `DataError` where there is nothing to compare with.
    """
    if path.suffix == ".npz":
        arrays = _arrays(path)
        if {"mu", "sigma"} <= arrays.keys():
            return _taken(path, arrays, features)
    reference = _opened(path, features, side=side)
    cached = _arrays(reference.cache) if reference.cache.exists() else {}
    if [str(cached.get(mark)) for mark in _MARKS] == [features.sha256, reference.marks]:
        print(f"statistics of the reference: {reference.cache}", file=sys.stderr)
        return _statistics(cached)
    found = statistics(_batches(reference.images, batch), features, name=str(path))
    _keep(reference, found, features)
    return found


def _arrays(path: Path) -> dict[str, Any]:
    """All but the images of an .npz."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names = {"mu", "sigma", "count", *_MARKS} & set(file.files)
            return {name: file[name] for name in names}
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: not an .npz that can be read: {error}") from None


def _taken(path: Path, arrays: dict[str, Any], features: Features) -> Statistics:
    """The statistics of a file, as ADM's reference batches and our own cache hold them."""
    made_by = str(arrays.get("features_sha256", ""))
    if not made_by:
        print(
            f"warning: {path} does not say which network its statistics are of; the distance "
            "means something only if it is that of --features",
            file=sys.stderr,
        )
    elif made_by != features.sha256:
        raise ConfigError(
            f"{path}: its statistics are of another feature network ({made_by[:12]}; --features "
            f"is {features.sha256[:12]}); name the images that they are of"
        )
    return _statistics(arrays)


def _statistics(arrays: dict[str, Any]) -> Statistics:
    mu, sigma = (np.asarray(arrays[name], dtype=np.float64) for name in ("mu", "sigma"))
    return Statistics(mu=mu, sigma=sigma, count=int(arrays.get("count", 0)))


def _opened(path: Path, features: Features, *, side: int) -> Reference:
    ending = f"fid-{features.sha256[:12]}"
    if is_run(path):
        run = RunFolder(path)
        config = expect(run.config(), Pretrain, source=path)
        source, marks = _data_of(run, config)
        return Reference(images=source, marks=marks, cache=run.samples / f"reference.{ending}.npz")
    if path.is_dir():
        source, marks = _folder(path, size=side)
        cache = path.with_name(f"{path.name}.{side}.{ending}.npz")
        return Reference(images=source, marks=marks, cache=cache)
    if path.suffix != ".npz":
        raise ConfigError(
            f"{path}: expected an .npz, a folder of images or the folder of a pretraining run"
        )
    facts = path.stat()
    return Reference(
        images=open_images(path),
        marks=f"{facts.st_size} {facts.st_mtime_ns}",
        cache=path.with_name(f"{path.stem}.{ending}.npz"),
    )


def _data_of(run: RunFolder, config: Pretrain) -> tuple[Source, str]:
    """What a run was trained on, as images, and what changes when they do."""
    data = config.data
    if data.source == "dummy":
        raise ConfigError(f"{run.path}: was trained on noise; there is nothing to compare with")
    if data.source == "latents":
        assert data.path is not None
        images = read_index(Path(data.path)).images
        if not Path(images.path).is_dir():
            raise ConfigError(
                f"{run.path}: the images that its latents were made of are not in {images.path} "
                "any more; name the folder they are in"
            )
        return _folder(Path(images.path), size=images.size)
    told = json.dumps(to_tree(data), sort_keys=True)
    return training_split(open_source(data), data), hashlib.sha256(told.encode()).hexdigest()


def _folder(folder: Path, *, size: int) -> tuple[Source, str]:
    """All images in a folder and below it, and a checksum of their names, sizes and times."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise ConfigError(f"{folder}: no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    marks = hashlib.sha256()
    for file in files:
        facts = file.stat()
        marks.update(f"{file.relative_to(folder)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    listing = Listing(files=files, labels=[0] * len(files), names=["image"])
    source = ImageFolder(listing, size=size, channels=3, classes=1)
    return source, f"{size} {marks.hexdigest()}"


def _batches(images: StoredImages | Source, size: int) -> Iterator[Pixels]:
    if isinstance(images, StoredImages):
        yield from images.batches(size)
        return
    # Decoding lets other threads run.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for begin in range(0, len(images), size):
            numbers = range(begin, min(begin + size, len(images)))
            pairs = threads.map(images.__getitem__, numbers)
            yield pixels_of(torch.from_numpy(np.stack([image for image, _ in pairs])))


def _keep(reference: Reference, found: Statistics, features: Features) -> None:
    """Keep statistics for the next time, unless the place cannot be written."""
    beside = reference.cache.with_name(f".{reference.cache.name}.{os.getpid()}.npz")
    try:
        reference.cache.parent.mkdir(exist_ok=True)
        np.savez(
            beside,
            mu=found.mu,
            sigma=found.sigma,
            count=found.count,
            features_sha256=features.sha256,
            images=reference.marks,
        )
        beside.replace(reference.cache)
    except OSError as error:
        print(f"warning: the reference's statistics are not kept: {error}", file=sys.stderr)
