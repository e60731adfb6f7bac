"""The optimizer takes the step of torch's AdamW on the parts that a rank holds."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from configs.schema import Pretrain
from train.pretrain.optimizer import make_optimizer

pytestmark = pytest.mark.usefixtures("group")


class Distributed(TorchDispatchMode):
    """Lists the operations of DTensors."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            self.operations.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_step_of_sharded_weights_is_that_of_plain_ones_and_no_operation_of_dtensors() -> None:
    torch.manual_seed(0)
    plain, sharded = nn.Linear(8, 8), nn.Linear(8, 8)
    sharded.load_state_dict(plain.state_dict())
    fully_shard(sharded)
    x = torch.randn(4, 8)
    optimizers = [make_optimizer(network, Pretrain()) for network in (plain, sharded)]
    for _ in range(3):
        for network, optimizer in zip((plain, sharded), optimizers, strict=True):
            network(x).square().sum().backward()
            with Distributed() as distributed:
                optimizer.step()
            optimizer.zero_grad()
    assert not [name for name in distributed.operations if "adam" in name]
    for name, weight in plain.named_parameters():
        found = sharded.get_parameter(name)
        assert isinstance(found, DTensor)
        assert torch.equal(found.to_local(), weight)
