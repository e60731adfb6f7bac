"""Under DDP a compiled block is one graph, and a forward pass sends nothing."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from configs.checks.batch import divide
from configs.load import resolve
from train.engine.distributed import Ranks
from train.model.build import build_network
from train.model.parallelize import parallelize


@pytest.mark.filterwarnings("ignore")  # the compiler warns
def test_under_ddp_a_block_is_one_graph_and_buffers_are_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Blocks of more than 1 MiB, the size of DDP's first bucket.
    model = {"width": 192, "heads": 2, "depth": 2, "patch": 8}
    config = resolve({"model": model, "train": {"compile": True, "global_batch": 4}}, source="test")
    counter = CompileCounter()
    compiled = functools.partialmethod(nn.Module.compile, backend=counter)
    monkeypatch.setattr(nn.Module, "compile", compiled)
    monkeypatch.setattr(torch._dynamo.config, "optimize_ddp", True)
    torch._dynamo.reset()
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        layout = divide(config, world=2)
        ranks = Ranks(rank=0, world=2, local_rank=0, local_world=2, device=torch.device("cpu"))
        network = parallelize(build_network(config), config, layout=layout, ranks=ranks)
        assert isinstance(network, DistributedDataParallel)
        size = config.data.size
        image = torch.randn(2, config.data.channels, size, size)
        sent: list[object] = []
        monkeypatch.setattr(dist, "_broadcast_coalesced", lambda *what: sent.append(what))
        network(image, torch.rand(2), torch.zeros(2, dtype=torch.long))
    finally:
        dist.destroy_process_group()
    assert counter.frame_count == 1  # which serves both blocks
    assert sent == []
