"""Statistics of the reference of a FID: of images, of the data of a run, or read from a cache."""

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

from configs.disk import IMAGE_SUFFIXES, replacing
from configs.errors import ConfigError
from configs.load import expect, to_tree
from configs.schema import Pretrain
from runs.folder import RunFolder, is_run
from train.data.catalog import open_source
from train.data.folder import ImageFolder, Listing
from train.data.latents.store import read_index
from train.data.source import Source, from_pixels, training_split
from train.evaluate.distances import MOST_ROWS, Statistics
from train.evaluate.fid_features import BATCH, Features, statistics
from train.evaluate.npz import Pixels, StoredImages, open_images
from train.evaluate.sampler import to_pixels

# Stored beside mu and sigma: a cache is used only if network and images are still the same.
_KEYS = ("features_sha256", "images")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Images, a `fingerprint` that changes if they change, and the `cache` of their statistics."""

    images: StoredImages | Source
    fingerprint: str
    cache: Path


def reference_statistics(path: Path, features: Features, *, side: int) -> Statistics:
    """Return the statistics of the reference at `path`.

    An .npz of `mu` and `sigma` is used as it is. Of an .npz of images, a folder of images (cropped
    and scaled to `side` pixels) or the training data of a run, the statistics are computed once
    and cached beside it. Raises `ConfigError` or `DataError` if there is no reference.
    """
    if path.suffix == ".npz":
        arrays = _arrays(path)
        if {"mu", "sigma"} <= arrays.keys():
            _check_network(path, arrays, features)
            return _statistics(arrays)
    reference = _open(path, features, side=side)
    cached = _arrays(reference.cache) if reference.cache.exists() else {}
    found = [str(cached.get(key)) for key in _KEYS]
    if "rows" in cached and found == [features.sha256, reference.fingerprint]:
        print(f"statistics of the reference: {reference.cache}", file=sys.stderr)
        return _statistics(cached)
    every = -(-len(reference.images) // MOST_ROWS)
    computed = statistics(_batches(reference.images), features, name=str(path), every=every)
    _save(reference, computed, features)
    return computed


def _arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz, except images."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names = {"mu", "sigma", "count", "rows", *_KEYS} & set(file.files)
            return {name: file[name] for name in names}
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: not a readable .npz: {error}") from None


def _check_network(path: Path, arrays: dict[str, Any], features: Features) -> None:
    """Check the network of stored statistics; ADM's reference batches do not name theirs."""
    made_by = str(arrays.get("features_sha256", ""))
    if not made_by:
        print(
            f"warning: {path} does not say which network its statistics are of; the distance is "
            "meaningful only if it is the network of --features",
            file=sys.stderr,
        )
    elif made_by != features.sha256:
        raise ConfigError(
            f"{path}: its statistics are of another feature network ({made_by[:12]}; --features "
            f"is {features.sha256[:12]}); give the images instead of the statistics"
        )


def _statistics(arrays: dict[str, Any]) -> Statistics:
    mu, sigma = (np.asarray(arrays[name], dtype=np.float64) for name in ("mu", "sigma"))
    return Statistics(
        mu=mu, sigma=sigma, count=int(arrays.get("count", 0)), rows=arrays.get("rows")
    )


def _open(path: Path, features: Features, *, side: int) -> Reference:
    suffix = f"fid-{features.sha256[:12]}"
    if is_run(path):
        run = RunFolder(path)
        config = expect(run.config(), Pretrain, source=path)
        source, fingerprint = _data_of(run, config)
        cache = run.samples / f"reference.{suffix}.npz"
        return Reference(images=source, fingerprint=fingerprint, cache=cache)
    if path.is_dir():
        source, fingerprint = _folder(path, size=side)
        cache = path.with_name(f"{path.name}.{side}.{suffix}.npz")
        return Reference(images=source, fingerprint=fingerprint, cache=cache)
    if path.suffix != ".npz":
        raise ConfigError(
            f"{path}: expected an .npz, a folder of images or the folder of a pretraining run"
        )
    stat = path.stat()
    return Reference(
        images=open_images(path),
        fingerprint=f"{stat.st_size} {stat.st_mtime_ns}",
        cache=path.with_name(f"{path.stem}.{suffix}.npz"),
    )


def _data_of(run: RunFolder, config: Pretrain) -> tuple[Source, str]:
    """Return the training images of a run and their fingerprint."""
    data = config.data
    if data.source == "dummy":
        raise ConfigError(f"{run.path}: was trained on noise; there is no reference")
    if data.source == "latents":
        assert data.path is not None
        images = read_index(Path(data.path)).images
        if not Path(images.path).is_dir():
            raise ConfigError(
                f"{run.path}: the images of its latents are no longer in {images.path}; give the "
                "folder that holds them"
            )
        return _folder(Path(images.path), size=images.size)
    keys = json.dumps(to_tree(data), sort_keys=True)
    return training_split(open_source(data), data), hashlib.sha256(keys.encode()).hexdigest()


def _folder(folder: Path, *, size: int) -> tuple[Source, str]:
    """Return all images in and below a folder, and a checksum of their names, sizes and times."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise ConfigError(f"{folder}: no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    checksum = hashlib.sha256()
    for file in files:
        name, stat = file.relative_to(folder), file.stat()
        checksum.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    listing = Listing(files=files, labels=[0] * len(files), names=["image"])
    source = ImageFolder(listing, size=size, channels=3, classes=1)
    return source, f"{size} {checksum.hexdigest()}"


def _batches(images: StoredImages | Source) -> Iterator[Pixels]:
    if isinstance(images, StoredImages):
        yield from images.batches(BATCH)
        return
    # Threads help: decoding releases the interpreter's lock.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for begin in range(0, len(images), BATCH):
            indices = range(begin, min(begin + BATCH, len(images)))
            pairs = threads.map(images.__getitem__, indices)
            batch = torch.from_numpy(np.stack([image for image, _ in pairs]))
            yield to_pixels(from_pixels(batch))


def _save(reference: Reference, found: Statistics, features: Features) -> None:
    """Write the statistics to the cache; warn if that is not possible."""
    try:
        reference.cache.parent.mkdir(exist_ok=True)
        with replacing(reference.cache) as file:
            np.savez(
                file, **vars(found), features_sha256=features.sha256, images=reference.fingerprint
            )
    except OSError as error:
        print(f"warning: the statistics of the reference are not cached: {error}", file=sys.stderr)
