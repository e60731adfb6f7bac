"""The weights that a run starts with: random, or read from `model.init_from`."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from configs.errors import ConfigError
from configs.schema import Pretrain
from runs.folder import RunFolder, is_run
from train.engine.checkpoint import read_weights
from train.engine.checkpoint_files import newest
from train.engine.metrics import log
from train.model.build import Network, build_network
from train.model.published import State


def load_initial_weights(network: nn.Module, config: Pretrain) -> None:
    """Load `model.init_from`; of a run each rank reads only its shards."""
    path = Path(str(config.model.init_from))
    if is_run(path):
        checkpoints = RunFolder(path).checkpoints
        name = newest(checkpoints)
        if name is None:
            raise ConfigError(f"model.init_from {path}: the run has no checkpoint yet")
        read_weights(checkpoints / name, network, which=config.model.init_weights)
    else:
        load_whole_weights(network, config)
    log.info("loaded weights of %s", path)


def load_whole_weights(network: nn.Module, config: Pretrain) -> None:
    """Load `model.init_from`, a file, into a network of any layout."""
    path = Path(str(config.model.init_from))
    state = _read(path, config, cast(Network, network))
    parameters = dict(network.named_parameters())
    if problem := _mismatch(state, parameters):
        raise ConfigError(f"model.init_from {path}: {problem}")
    for name, parameter in parameters.items():
        copy_shard(parameter, state[name])


@torch.no_grad()
def copy_shard(parameter: Tensor, whole: Tensor) -> None:
    """Copy the values `whole` into a parameter, or into this rank's shard of it."""
    if isinstance(parameter, DTensor):
        (chunk,) = parameter.__create_chunk_list__()
        for dim, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            whole = whole.narrow(dim, offset, size)
        parameter = parameter.to_local()
    parameter.copy_(whole)


def _read(path: Path, config: Pretrain, network: Network) -> State:
    """Return published weights by our names; the architecture converts its own."""
    converted = network.from_published(_read_torch(path, config.model.init_weights))
    if converted is None:
        raise ConfigError(f"model.init_from {path}: holds no published weights of this model")
    return converted


def _read_torch(path: Path, which: str) -> State:
    """Return the tensors of a torch file; fast-DiT's has `ema`, `model` and optimizer state."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        # torch documents no exception type for damaged or unsafe files.
        raise ConfigError(f"model.init_from {path}: cannot be read as weights: {error}") from None
    if isinstance(content, dict) and isinstance(content.get(which), dict):
        content = content[which]
    if not isinstance(content, dict) or not all(
        isinstance(value, torch.Tensor) for value in content.values()
    ):
        raise ConfigError(f"model.init_from {path}: holds no weights")
    return content


def _mismatch(found: State, expected: Mapping[str, Tensor]) -> str | None:
    """Return how weights differ from the network in names or shapes, and the key that fixes it."""
    missing, unexpected = expected.keys() - found.keys(), found.keys() - expected.keys()
    wrong = [n for n in expected if n in found and expected[n].shape != found[n].shape]
    if wrong:
        name = sorted(wrong)[0]
        shapes = f"{list(found[name].shape)}, the config makes it {list(expected[name].shape)}"
        return (
            f"{name} is {shapes}; set model.width, depth, patch, mlp_ratio and data.channels, "
            "classes to the values of the weights"
        )
    if not missing and not unexpected:
        return None
    first = f"lacks {sorted(missing)[0]}" if missing else f"has an extra {sorted(unexpected)[0]}"
    blocks, expected_blocks = _block_count(found), _block_count(expected)
    if blocks != expected_blocks:
        return f"{first}; set model.depth to its {blocks} blocks"
    if any("q_norm" in name for name in missing):
        return f"{first}; set model.qk_norm: false"
    return f"{first}; set model.mlp and model.conditioning to match the weights"


def _block_count(state: Mapping[str, Tensor]) -> int:
    return len({name.split(".")[1] for name in state if name.startswith("blocks.")})


class InitialNetwork:
    """The `network` of a config on the `meta` device, and the weights that it starts with.

    Random weights equal `build_network`'s to the bit, in every layout, but no rank holds all of
    them in host memory: the operations that initialise the parameters are recorded when the
    network is built, and repeated in the same order on one parameter at a time.
    """

    def __init__(self, config: Pretrain) -> None:
        self._config = config
        with torch.device("meta"), _Recorder() as recorder:
            self.network = build_network(config)
        names = {id(parameter): name for name, parameter in self.network.named_parameters()}
        self._drawn = [(names[id(x)], draw) for x, draw in recorder.calls if id(x) in names]
        assert {name for name, _ in self._drawn} == set(names.values())

    def fill(self) -> None:
        """Give the distributed network its weights: every rank keeps its shards. Collective."""
        if self._config.model.init_from is not None:
            load_initial_weights(self.network, self._config)
            return
        parameters = dict(self.network.named_parameters())
        torch.manual_seed(self._config.seed)
        for name, draw in self._drawn:
            whole = torch.empty(parameters[name].shape, device="cpu")
            draw(whole)
            copy_shard(parameters[name], whole)


class _Recorder(TorchDispatchMode):
    """Records the operations that write to tensors, each with its tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Tensor, Callable[[Tensor], object]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            self.calls.append((args[0], lambda whole: func(whole, *args[1:], **kwargs)))
        return func(*args, **kwargs)
