"""`train.compile: graphs`, as far as a CPU shows: what is compiled, and what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from train.engine.distributed import Ranks, process_group
from train.model import cuda_graphs
from train.pretrain.train_state import TrainState, make_train_state, zero_batch

CPU = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))


def state(**train: Any) -> TrainState:
    model = {"width": 32, "depth": 1, "heads": 2}
    data = {"source": "digits", "size": 8, "channels": 1, "classes": 10}
    tree = {"model": model, "data": data, "train": {"global_batch": 4, "precision": "fp32"} | train}
    config = resolve(tree, source="test")
    assert isinstance(config, Pretrain)
    return make_train_state(config, layout=divide(config, world=1), ranks=CPU)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Let a CPU take the path of CUDA graphs, with a compiler that only counts."""
    counter = CompileCounter()

    def counting(function: Any, *, options: dict[str, Any], **rest: Any) -> Any:
        assert options["triton.cudagraphs"]
        return compiled(function, backend=counter, **rest)

    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", counting)
    monkeypatch.setattr(cuda_graphs, "check_cuda_graphs", lambda device: None)
    torch.compiler.reset()
    with process_group(CPU):
        yield counter
    torch.compiler.reset()


def steps(train_state: TrainState) -> list[float]:
    """Take three steps on other data each time; return their losses."""
    found = []
    for step in range(1, 4):
        batch = zero_batch(train_state.config, images=4, device=CPU.device)
        generator = torch.Generator().manual_seed(step)
        batch.image.normal_(generator=generator)
        batch.t.uniform_(generator=generator)
        losses = train_state.losses(batch)
        losses.mean().backward()
        train_state.update(step)
        found.append(losses.sum().item())
    return found


@pytest.mark.filterwarnings("ignore")  # the compiler warns
def test_a_step_replays_one_graph_and_an_evaluation_runs_eagerly(
    graphs: CompileCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[int] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(1))
    train_state = state(compile="graphs", ema_decay=0.5)
    train_state.rehearse(4, device=CPU.device)
    assert len(marks) == cuda_graphs.PASSES
    assert all(parameter.grad is None for parameter in train_state.network.parameters())
    before = torch.nn.utils.parameters_to_vector(train_state.network.parameters())
    assert torch.equal(before, torch.nn.utils.parameters_to_vector(state().network.parameters()))
    with torch.no_grad(), train_state.ema.swapped_in():
        train_state.losses(zero_batch(train_state.config, images=3, device=CPU.device))
    assert len(marks) == cuda_graphs.PASSES
    assert steps(train_state) == pytest.approx(steps(state(compile=False)), rel=1e-5)
    assert len(marks) == cuda_graphs.PASSES + 3
    assert graphs.frame_count == 1
    monkeypatch.setitem(counters["inductor"], "cudagraph_skips", 1)
    with pytest.raises(ConfigError, match="torch does not record this network"):
        train_state.rehearse(4, device=CPU.device)


def test_a_cpu_and_an_amd_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="needs an NVIDIA GPU"):
        state(compile="graphs")
    gpu = torch.device("cuda", 0)
    cuda_graphs.check_cuda_graphs(gpu)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    with pytest.raises(ConfigError, match="needs an NVIDIA GPU"):
        cuda_graphs.check_cuda_graphs(gpu)
