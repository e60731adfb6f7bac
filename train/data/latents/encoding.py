"""How images become the shards of a latent store, one whole shard after the other.

A shard is a function of the listing, the VAE and the config alone, whichever rank makes it.
"""

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from configs.disk import PARTIAL_SUFFIX, replace_file
from configs.errors import ConfigError, DataError
from configs.schema.encode import Encoding
from train.data.folder import ImageFolder, Listing, list_images
from train.data.latents.shards import record_of, shard_name, write_shard
from train.data.latents.store import (
    ENCODING,
    ImageFacts,
    Index,
    Shard,
    ShardEntry,
    checksum,
    read_part,
)
from train.data.latents.vae import Vae
from train.data.loader import LoaderIterator, ignore_signals


@dataclass(frozen=True, kw_only=True)
class _Images:
    """Some images as far as they can be read: `[n, C, H, W]`, their labels, and complaints."""

    image: Tensor | None
    label: list[int]
    bad: list[str]


class _Batches(Dataset[_Images]):
    def __init__(self, images: ImageFolder) -> None:
        self._images = images

    def __getitem__(self, numbers: list[int]) -> _Images:
        images, labels, bad = [], [], []
        for number in numbers:
            try:
                image, label = self._images[number]
            except DataError as error:
                bad.append(str(error))
            else:
                images.append(image)
                labels.append(label)
        stacked = torch.from_numpy(np.stack(images)) if images else None
        return _Images(image=stacked, label=labels, bad=bad)


class Encoder:
    """The shards of one store: which there are, which are sound, and how one is made."""

    def __init__(self, config: Encoding, *, device: torch.device) -> None:
        assert config.images is not None
        assert config.vae is not None
        assert config.out is not None
        self.config, self.out = config, Path(config.out)
        labels = Path(config.labels) if config.labels else None
        self.listing: Listing = list_images(Path(config.images), labels=labels)
        self.listing_sha256 = _listing_sha256(self.listing, Path(config.images))
        self._images = ImageFolder(
            self.listing,
            size=config.size,
            channels=config.channels,
            classes=len(self.listing.names),
        )
        self._vae = Vae(Path(config.vae), device=device, precision=config.precision)
        if self._vae.image_channels != config.channels:
            raise ConfigError(
                f"encode.channels is {config.channels}, the VAE in {config.vae} takes "
                f"{self._vae.image_channels}: set encode.channels to that"
            )
        self.shards = -(-len(self.listing.files) // config.shard_examples)

    def claim(self) -> None:
        """Take the folder for this encoding, or go on with it; another one's is refused."""
        self.out.mkdir(parents=True, exist_ok=True)
        asked = self._asked()
        file = self.out / ENCODING
        if file.is_file():
            try:
                before = dict(json.loads(file.read_bytes()))
            except (ValueError, TypeError):
                raise ConfigError(f"{file}: not JSON; empty {self.out} or set encode.out") from None
            changed = [name for name, value in asked.items() if before.get(name) != value]
            if changed:
                raise ConfigError(
                    f"encode.out {self.out}: holds another encoding: {', '.join(changed)} differ "
                    f"from {ENCODING}; set encode.out to another folder, or empty this one"
                )
        elif any(self.out.iterdir()):
            raise ConfigError(f"encode.out {self.out}: not empty, and no store; name another")
        else:
            replace_file(file, json.dumps(asked, indent=1) + "\n")
        for left in (*self.out.glob(".*.partial"), *self.out.glob(f".*{PARTIAL_SUFFIX}")):
            left.unlink()

    def _asked(self) -> dict[str, object]:
        """What must be equal for shards of two attempts to belong together."""
        kept = ("size", "channels", "flip", "precision", "dtype", "shard_examples")
        return {name: getattr(self.config, name) for name in kept} | {
            "images": len(self.listing.files),
            "listing": self.listing_sha256,
            "vae": self._vae.facts.sha256,
        }

    def sound(self, number: int) -> Shard | None:
        """The record of a shard that is there and whole; None where it must be made."""
        file = self.out / shard_name(number)
        if not (file.is_file() and record_of(file).is_file()):
            return None
        try:
            record = read_part(record_of(file), Shard)
        except DataError:
            return None
        if file.stat().st_size != record.bytes or checksum(file) != record.sha256:
            return None
        # Who no longer wants images skipped is to hear which one is bad.
        return None if record.skipped and not self.config.skip_bad else record

    def make(self, number: int) -> Shard:
        """Encode and write one shard; `DataError` names an image that cannot be read."""
        size = self.config.shard_examples
        numbers = range(number * size, min((number + 1) * size, len(self.listing.files)))
        moments, labels, skipped = self._encoded(numbers)
        return write_shard(self.out / shard_name(number), moments, labels, skipped=skipped)

    def _encoded(self, numbers: range) -> tuple[Tensor, list[int], list[str]]:
        """Moments `[n, flips, 1 or 2, C, h, w]`, labels and complaints of the images."""
        config, parts, labels, skipped = self.config, list[Tensor](), list[int](), list[str]()
        loader: DataLoader[_Images] = DataLoader(
            _Batches(self._images),
            batch_size=None,
            sampler=[list(some) for some in _split(numbers, config.micro_batch)],
            num_workers=config.workers,
            worker_init_fn=ignore_signals if config.workers else None,
        )
        with contextlib.closing(LoaderIterator(loader)) as loading:
            for images in loading:
                if images.bad and not config.skip_bad:
                    raise DataError(f"{images.bad[0]}; mend it, or set encode.skip_bad true")
                skipped += images.bad
                labels += images.label
                if images.image is not None:
                    parts.append(self._moments(images.image))
        if not parts:
            # The shape is the VAE's to say.
            blank = torch.zeros(1, config.channels, config.size, config.size)
            parts.append(self._moments(blank)[:0])
        return torch.cat(parts), labels, skipped

    def _moments(self, images: Tensor) -> Tensor:
        both = [images, images.flip(-1)] if self.config.flip else [images]
        moments = [torch.stack(self._vae.encode(each)[: 1 + self._vae.has_std], 1) for each in both]
        stacked = torch.stack(moments, 1).to(getattr(torch, self.config.dtype)).cpu()
        if not stacked.isfinite().all():
            raise DataError(
                f"the VAE in {self.config.vae} gives NaN or inf in encode.precision "
                f"{self.config.precision}, stored as {self.config.dtype}; set encode.precision "
                "fp32 and encode.dtype float32"
            )
        return stacked

    def index(self, records: list[Shard]) -> Index:
        """The index of the finished store; statistics are added up in float64."""
        examples = sum(record.examples for record in records)
        skipped = sum(len(record.skipped) for record in records)
        if not examples:
            raise DataError(f"{self.config.images}: none of {skipped} images can be read")
        shape = self._shape()
        count = examples * (2 if self.config.flip else 1) * shape[1] * shape[2]
        mean = np.sum([record.sums for record in records], axis=0) / count
        variance = np.sum([record.squares for record in records], axis=0) / count - mean**2
        return Index(
            format=1,
            examples=examples,
            shape=shape,
            dtype=self.config.dtype,
            precision=self.config.precision,
            flips=2 if self.config.flip else 1,
            moments=2 if self._vae.has_std else 1,
            classes=len(self.listing.names),
            names=self.listing.names,
            mean=mean.tolist(),
            std=np.sqrt(np.maximum(variance, 0)).tolist(),
            scale=self._vae.scale,
            shift=self._vae.shift,
            vae=self._vae.facts,
            images=ImageFacts(
                path=str(self.config.images),
                listed=len(self.listing.files),
                skipped=skipped,
                size=self.config.size,
                channels=self.config.channels,
                sha256=self.listing_sha256,
            ),
            shards=[ShardEntry(**record.model_dump(include=_NAMED)) for record in records],
        )

    def _shape(self) -> tuple[int, int, int]:
        blank = torch.zeros(1, self.config.channels, self.config.size, self.config.size)
        channels, high, wide = self._vae.encode(blank)[0].shape[1:]
        return channels, high, wide


_NAMED = set(ShardEntry.model_fields)


def _listing_sha256(listing: Listing, folder: Path) -> str:
    """A checksum of the images' names and labels, in order; not of their contents."""
    digest, prefix = hashlib.sha256(), len(str(folder))
    for file, label in zip(listing.files, listing.labels, strict=True):
        digest.update(f"{str(file)[prefix:]}\0{label}\0".encode())
    return digest.hexdigest()


def _split(numbers: range, size: int) -> list[range]:
    return [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]
