"""Latent stores that tests read and spoil: real encodings by tiny VAEs."""

from collections.abc import Callable
from pathlib import Path

from configs.schema.data import Data
from configs.schema.encode import Encoding
from tests.train.tiny_vae import save_images, save_kl
from train.encode import Progress, encode
from train.engine.distributed import process_group, read_ranks
from train.engine.stop import StopRequest

# 15 images make the shards 4 + 4 + 4 + 3; a microbatch of 3 leaves a rest in each.
SMALL = {"size": 16, "shard_examples": 4, "micro_batch": 3}


def encoding(folder: Path, **keys: object) -> Encoding:
    """What `folder/images` is encoded with, by the VAE in `folder/vae` into `folder/store`."""
    paths = {name: str(folder / name) for name in ("images", "vae")}
    return Encoding.model_validate(paths | {"out": str(folder / "store")} | SMALL | keys)


def write_store(folder: Path, *, per_class: int = 5) -> Path:
    """Make `folder` with images, a VAE, and their store."""
    save_images(folder / "images", per_class=per_class)
    save_kl(folder / "vae")
    encode_alone(encoding(folder))
    return folder


def encode_alone(
    config: Encoding, *, request: Callable[[], StopRequest] = lambda: StopRequest.GO_ON
) -> tuple[StopRequest, list[Progress]]:
    """Encode with this process as the only rank."""
    ranks, heard = read_ranks(), list[Progress]()
    with process_group(ranks):
        return encode(config, ranks, request=request, report=heard.append), heard


def latents(store: Path, **keys: object) -> Data:
    """The config of a data set that is a store by a tiny VAE."""
    told = {"source": "latents", "path": str(store), "size": 8, "channels": 4, "classes": 3}
    return Data.model_validate(told | keys)


def contents(store: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {file.name: file.read_bytes() for file in sorted(store.iterdir())}
