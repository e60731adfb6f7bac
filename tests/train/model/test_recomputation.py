"""Selective recomputation repeats neither matrix products nor communication."""

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from configs.load import resolve
from configs.schema import Pretrain
from configs.schema.training import ActivationCheckpointing
from train.model.build import build_network
from train.model.parallelize import apply_activation_checkpointing, apply_tensor_parallel

BY_OPERATION = ActivationCheckpointing(mode="selective", every=None)
FULL = ActivationCheckpointing(mode="full")


class Operations(TorchDispatchMode):
    """Counts the operations of a section by name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[func.name().partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


def operations_of(block: nn.Module, *inputs: Tensor | None) -> Counter[str]:
    with Operations() as operations:
        block(*inputs).sum().backward()
    return operations.count


def tensor_parallel_block(checkpointing: ActivationCheckpointing | None) -> nn.Module:
    config = resolve({"model": {"width": 32, "heads": 2, "depth": 1}}, source="test")
    assert isinstance(config, Pretrain)
    block: nn.Module = build_network(config).blocks[0]
    if checkpointing is not None:
        apply_activation_checkpointing([block], checkpointing)
    apply_tensor_parallel(block, dist.init_device_mesh("cpu", (2,)))
    return block


def test_all_reduces_of_tensor_parallelism_are_not_repeated() -> None:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        plain, by_operation, full = (
            operations_of(
                tensor_parallel_block(each),
                torch.randn(2, 16, 32, requires_grad=True),
                torch.randn(2, 32),
                None,
            )
            for each in (None, BY_OPERATION, FULL)
        )
    finally:
        dist.destroy_process_group()
    for name in ("all_reduce", "all_gather_into_tensor", "addmm"):
        assert by_operation[name] == plain[name] < full[name], name
