"""A latent store against one file per image, read through the same DataLoader.

    python -m benchmarks.latents [--examples 20000] [--rounds 9] [--workers 0] [--json]

The peer is the format of fast-DiT (chuanyangjin/fast-DiT, train.py, CustomDataset): a .npy of
features and a .npy of the label for each image, loaded in the order of an epoch and collated
by torch. The store holds as many latents of the same shape, and also their std and the encoding
of the mirrored image. `read` takes one latent and its label per example, as the files have it.
`drawn` takes what training needs and the files cannot give: mean + std * fresh noise of the image
or its mirror image. Everything is in the page cache, which favours the files: on a shared file
system each file costs one more round trip. The ratio is images/s over images/s of the files.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.interleave import CLOCKS, Arm, Stopwatch, interleave, ratio, report
from train.data.latents.dataset import Latents
from train.data.latents.store import (
    ImageFacts,
    ShardEntry,
    StoreIndex,
    VaeFacts,
    shard_name,
    write_shard,
)
from train.diffusion.rng import Augmentation, epoch_order
from train.engine.environment import cpu_model, versions

CLASSES = 1000
Batches = Iterable[tuple[Tensor, Tensor]]


def main(arguments: list[str]) -> int:
    """Measure and print a report."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    watch = Stopwatch(clock=options.clock, device=torch.device("cpu"))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store, files = make(Path(folder), options)
        arms: dict[str, Arm] = {
            "files": lambda: exhaust(file_batches(files, options)),
            "read": lambda: exhaust(store_batches(StoreBatches(store, augments=False), options)),
            "drawn": lambda: exhaust(store_batches(StoreBatches(store, augments=True), options)),
        }
        seconds = interleave(arms, rounds=options.rounds, warmup=1, watch=watch)
    ratios = [
        ratio(f"store, {name} / one file per image", seconds["files"], seconds[name])
        for name in ("read", "drawn")
    ]
    rates = {
        f"{name} images/s": round(options.examples / statistics.median(seconds[name]))
        for name in arms
    }
    taken = rates | {
        "examples": options.examples,
        "shape": "x".join(map(str, options.shape)),
        "batch": options.batch,
        "workers": options.workers,
        "clock": options.clock,
        "device": cpu_model(),
    }
    report(ratios, taken=taken | versions(), as_json=options.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--shape", type=int, nargs=3, default=(4, 32, 32), metavar=("C", "H", "W"))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0, help="loader processes of each side")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: with --workers 0")
    parser.add_argument(
        "--folder", type=Path, help="folder to write to; default: the temporary folder"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def make(folder: Path, options: argparse.Namespace) -> tuple[Latents, Path]:
    """Write the same random latents to a store and to files."""
    features, labels = folder / "features", folder / "labels"
    for inner in (features, labels):
        inner.mkdir()
    shards, generator = [], np.random.default_rng(0)
    for number, begin in enumerate(range(0, options.examples, 4096)):
        numbers = range(begin, min(begin + 4096, options.examples))
        moments = generator.standard_normal((len(numbers), 2, 2, *options.shape), dtype=np.float32)
        shard = write_shard(
            folder / shard_name(number),
            {"moments": torch.from_numpy(moments).half()},
            [index % CLASSES for index in numbers],
            skipped=[],
        )
        shards.append(ShardEntry(**shard.model_dump(include=set(ShardEntry.model_fields))))
        for index, example in zip(numbers, moments, strict=True):
            np.save(features / f"{index}.npy", example[0, :1])
            np.save(labels / f"{index}.npy", np.array([index % CLASSES]))
    return Latents(folder, index_of(options, shards)), folder


def index_of(options: argparse.Namespace, shards: list[ShardEntry]) -> StoreIndex:
    """Return an index of random latents with made-up facts about VAE and images."""
    channels = options.shape[0]
    nothing = {"path": "", "sha256": ""}
    return StoreIndex(
        format=1,
        examples=options.examples,
        shape=tuple(options.shape),
        dtype="float16",
        precision="fp32",
        flips=2,
        moments=2,
        classes=CLASSES,
        names=[str(label) for label in range(CLASSES)],
        mean=[0.0] * channels,
        std=[1.0] * channels,
        scale=[1.0] * channels,
        shift=[0.0] * channels,
        vae=VaeFacts(name="none", config={}, **nothing),
        images=ImageFacts(listed=options.examples, skipped=0, size=1, channels=3, **nothing),
        shards=shards,
    )


class Files(Dataset[tuple[Tensor, Tensor]]):
    """One latent per file, read as fast-DiT does."""

    def __init__(self, folder: Path) -> None:
        self._features, self._labels = str(folder / "features"), str(folder / "labels")

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # os.path, as in fast-DiT: pathlib would make the files 5 % slower.
        features = np.load(os.path.join(self._features, f"{index}.npy"))
        labels = np.load(os.path.join(self._labels, f"{index}.npy"))
        return torch.from_numpy(features), torch.from_numpy(labels)


class StoreBatches(Dataset[tuple[Tensor, Tensor]]):
    """Reads whole batches of a store."""

    def __init__(self, source: Latents, *, augments: bool) -> None:
        self._source, self._augments = source, augments

    def __getitem__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        latents, labels = np.empty((len(indices), *self._source.index.shape), np.float32), []
        for place, index in enumerate(indices):
            latents[place], label = self._example(index)
            labels.append(label)
        return torch.from_numpy(latents), torch.tensor(labels)

    def _example(self, index: int) -> tuple[np.ndarray, int]:
        if not self._augments:
            return self._source[index]
        variant = Augmentation(flip=bool(index % 2), seed=0, epoch=0, index=index)
        return self._source.augmented(index, variant)


def file_batches(files: Path, options: argparse.Namespace) -> Batches:
    """Return batches of the files in the order of an epoch."""
    places = epoch_order(0, 0, options.examples).tolist()
    dataset = Files(files)
    return DataLoader(
        dataset, batch_size=options.batch, sampler=places, num_workers=options.workers
    )


def store_batches(dataset: StoreBatches, options: argparse.Namespace) -> Batches:
    """Return batches of the store in the order of an epoch."""
    places = epoch_order(0, 0, options.examples).tolist()
    batches = [places[i : i + options.batch] for i in range(0, len(places), options.batch)]
    return DataLoader(dataset, batch_size=None, sampler=batches, num_workers=options.workers)


def exhaust(batches: Batches) -> None:
    """Take every batch."""
    for latents, labels in batches:
        assert len(latents) == len(labels)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
