"""Latent stores for tests to read and damage: real encodings by tiny VAEs."""

from collections.abc import Callable
from pathlib import Path

import torch

from configs.schema.data import Data
from configs.schema.encode import Encoding
from tests.train.tiny_vae import save_images, save_kl
from train.encode import Progress, encode
from train.engine.distributed import process_group, read_ranks
from train.engine.stop import StopRequest

# 15 images make shards of 4 + 4 + 4 + 3; a microbatch of 3 does not divide 4.
SMALL = {"size": 16, "shard_examples": 4, "micro_batch": 3}


def encoding(folder: Path, **keys: object) -> Encoding:
    """Return the config that encodes `folder/images` by `folder/vae` into `folder/store`."""
    paths = {name: str(folder / name) for name in ("images", "vae")}
    return Encoding.model_validate(paths | {"out": str(folder / "store")} | SMALL | keys)


def write_store(folder: Path, *, per_class: int = 5) -> Path:
    """Write images, a VAE and their store into `folder`, and return it."""
    save_images(folder / "images", per_class=per_class)
    save_kl(folder / "vae")
    encode_alone(encoding(folder))
    return folder


def encode_alone(
    config: Encoding, *, request: Callable[[], StopRequest] = lambda: StopRequest.GO_ON
) -> tuple[StopRequest, list[Progress]]:
    """Encode with this process as the only rank; return the outcome and all reports.

    On one thread: the last bits depend on the number of threads, which other tests change.
    """
    ranks, reports, threads = read_ranks(), list[Progress](), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with process_group(ranks):
            return encode(config, ranks, request=request, report=reports.append), reports
    finally:
        torch.set_num_threads(threads)


def latents(store: Path, **keys: object) -> Data:
    """Return the `data` section for a store by a tiny VAE."""
    fields = {"source": "latents", "path": str(store), "size": 8, "channels": 4, "classes": 3}
    return Data.model_validate(fields | keys)


def contents(store: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a store by its name."""
    return {file.name: file.read_bytes() for file in sorted(store.iterdir())}


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
