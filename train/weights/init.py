"""The network that a run starts with: random by its seed, or with the weights of a file or run."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from configs.schema import Pretrain
from train.model.build import build_network
from train.weights.load import copy_shard, load_initial_weights


class InitialNetwork:
    """The `network` of a config on the `meta` device, and the weights that it starts with.

    Random weights are those of `build_network` to the bit, in every layout, but no rank holds all
    of them in host memory: the operations that initialise the parameters are recorded when the
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
