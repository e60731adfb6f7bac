"""Encode images into the shards of a latent store.

A shard depends only on the list of images, the VAE and the config, not on the rank that makes it.
"""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from configs.disk import PARTIAL_SUFFIX, replace_file
from configs.errors import ConfigError, DataError
from configs.files import read_bytes
from configs.schema.encode import Encoding
from train.data.folder import ImageFolder, Listing, list_images
from train.data.latents import store
from train.data.latents.features import FeatureEncoder
from train.data.latents.vae import Vae
from train.data.loader import LoaderIterator, ignore_signals
from train.data.source import from_pixels


@dataclass(frozen=True, kw_only=True)
class _ImageBatch:
    """The images of a batch `[n, C, H, W]` and their labels."""

    images: Tensor
    labels: list[int]

    def pin_memory(self) -> "_ImageBatch":
        """Copy the images to page-locked memory; `DataLoader` calls this."""
        return replace(self, images=self.images.pin_memory())


class _BatchDataset(Dataset[_ImageBatch]):
    def __init__(self, folder: ImageFolder) -> None:
        self._folder = folder

    def __getitem__(self, indices: list[int]) -> _ImageBatch:
        images, labels = zip(*(self._folder[index] for index in indices), strict=True)
        return _ImageBatch(images=torch.from_numpy(np.stack(images)), labels=list(labels))


class Encoder:
    """Finds the finished shards of one store and makes the others."""

    def __init__(self, config: Encoding, *, device: torch.device) -> None:
        assert config.images is not None
        assert config.vae is not None
        assert config.out is not None
        self.config, self.out = config, Path(config.out)
        self.listing: Listing = list_images(Path(config.images))
        self.listing_sha256 = _listing_sha256(self.listing, Path(config.images))
        classes = len(self.listing.names)
        self._images = ImageFolder(self.listing, size=config.size, channels=3, classes=classes)
        self._vae = Vae(Path(config.vae), device=device, precision=config.precision)
        if self._vae.image_channels != 3:
            raise ConfigError(f"the VAE in {config.vae} takes other images than colour ones")
        self._features: FeatureEncoder | None = None
        if config.features is not None:
            folder = Path(config.features)
            self._features = FeatureEncoder(folder, grid=config.feature_grid, device=device)
        self.shard_count = -(-len(self.listing.files) // config.shard_examples)

    def claim_folder(self) -> None:
        """Reserve the output folder, or continue in it. Raise `ConfigError` if it holds others."""
        self.out.mkdir(parents=True, exist_ok=True)
        settings = self._settings()
        file = self.out / store.ENCODING
        if file.is_file():
            try:
                before = dict(json.loads(read_bytes(file)))
            except (ValueError, TypeError):
                raise ConfigError(f"{file}: not JSON; empty {self.out} or set encode.out") from None
            changed = [name for name, value in settings.items() if before.get(name) != value]
            if changed:
                raise ConfigError(
                    f"encode.out {self.out}: holds another encoding: {', '.join(changed)} differ "
                    f"from {store.ENCODING}; set encode.out to another folder, or empty this one"
                )
        elif any(self.out.iterdir()):
            raise ConfigError(f"encode.out {self.out}: not empty, and no store; name another")
        else:
            replace_file(file, json.dumps(settings, indent=1) + "\n")
        for leftover in self.out.glob(f".*{PARTIAL_SUFFIX}"):
            leftover.unlink()

    def _settings(self) -> dict[str, object]:
        """Return the settings that must be equal for shards of two attempts to form one store."""
        keys = ("size", "flip", "precision", "dtype", "shard_examples")
        return {key: getattr(self.config, key) for key in keys} | {
            "images": len(self.listing.files),
            "listing": self.listing_sha256,
            "vae": self._vae.facts.sha256,
            # None in stores without features, also in older ones.
            "features": self._features and self._features.facts.model_dump_json(exclude={"path"}),
        }

    def finished_shard(self, number: int) -> store.ShardEntry | None:
        """Return the record of a shard if its file is complete, else None."""
        file = self.out / store.shard_name(number)
        if not (file.is_file() and store.record_path(file).is_file()):
            return None
        try:
            record = store.read_json(store.record_path(file), store.ShardEntry)
        except DataError:
            return None
        if file.stat().st_size != record.bytes or store.checksum(file) != record.sha256:
            return None
        return record

    def make_shards(
        self, numbers: list[int]
    ) -> Generator[tuple[int, store.ShardEntry], None, None]:
        """Encode and write shards in turn; yield the number and the record of each.

        Raise `DataError` for an image that cannot be read.
        """
        config, device, batches = self.config, self._vae.device, self._batches
        loader: DataLoader[_ImageBatch] = DataLoader(
            _BatchDataset(self._images),
            batch_size=None,
            sampler=[batch for number in numbers for batch in batches(number)],
            num_workers=config.workers,
            pin_memory=device.type == "cuda",
            worker_init_fn=ignore_signals if config.workers else None,
        )
        with contextlib.closing(LoaderIterator(loader)) as loaded:
            for number in numbers:
                encoded = self._encode(itertools.islice(loaded, len(batches(number))))
                yield number, store.write_shard(self.out / store.shard_name(number), *encoded)

    def _batches(self, number: int) -> list[list[int]]:
        """Return the indices of the images of a shard, batch by batch."""
        size, micro = self.config.shard_examples, self.config.micro_batch
        indices = range(number * size, min((number + 1) * size, len(self.listing.files)))
        return [list(indices[k : k + micro]) for k in range(0, len(indices), micro)]

    def _encode(self, batches: Iterator[_ImageBatch]) -> tuple[dict[str, Tensor], list[int]]:
        """Return moments `[n, flips, 2, C, h, w]`, features if they are encoded, and labels."""
        tensors, labels = list[dict[str, Tensor]](), list[int]()
        for batch in batches:
            labels += batch.labels
            tensors.append(self._tensors(batch.images))
        joined = {name: torch.cat([each[name] for each in tensors]) for name in tensors[0]}
        return joined, labels

    def _tensors(self, images: Tensor) -> dict[str, Tensor]:
        """Return moments and features of images `[n, C, H, W]`, uint8 or float32 in -1..1."""
        images = from_pixels(images.to(self._vae.device, non_blocking=True))
        variants = [images, images.flip(-1)] if self.config.flip else [images]
        tensors = {"moments": self._moments(variants)}
        if self._features is not None:
            features = [self._features.encode(each) for each in variants]
            tensors["features"] = torch.stack(features, 1).half().cpu()
        return tensors

    def _moments(self, variants: list[Tensor]) -> Tensor:
        """Return the moments of images `[n, C, H, W]`, one of the `variants` after the other."""
        moments = [torch.stack(self._vae.encode(images), 1) for images in variants]
        stacked = torch.stack(moments, 1).to(getattr(torch, self.config.dtype)).cpu()
        if not stacked.isfinite().all():
            raise DataError(
                f"the VAE in {self.config.vae} gives NaN or inf in encode.precision "
                f"{self.config.precision}, stored as {self.config.dtype}; set encode.precision "
                "fp32 and encode.dtype float32"
            )
        return stacked

    def index(self, records: list[store.ShardEntry]) -> store.StoreIndex:
        """Return the index of the finished store."""
        blank = torch.zeros(1, 3, self.config.size, self.config.size)
        channels, height, width = self._vae.encode(blank)[0].shape[1:]
        return store.StoreIndex(
            format=1,
            examples=len(self.listing.files),
            shape=(channels, height, width),
            dtype=self.config.dtype,
            precision=self.config.precision,
            flips=2 if self.config.flip else 1,
            classes=len(self.listing.names),
            names=self.listing.names,
            scale=self._vae.scale,
            shift=self._vae.shift,
            vae=self._vae.facts,
            features=self._features.facts if self._features else None,
            images=store.ImageFacts(
                path=str(self.config.images),
                listed=len(self.listing.files),
                size=self.config.size,
                sha256=self.listing_sha256,
            ),
            shards=records,
        )


def _listing_sha256(listing: Listing, folder: Path) -> str:
    """Return a checksum of the images' names and labels in order, not of their contents."""
    digest, prefix = hashlib.sha256(), len(str(folder))
    for file, label in zip(listing.files, listing.labels, strict=True):
        digest.update(f"{str(file)[prefix:]}\0{label}\0".encode())
    return digest.hexdigest()
