"""float8 rounds the large products of a block and nothing else, and needs a GPU that has it."""

import pytest
import torch
from torch import nn

from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from tests.real_runs import TINY, trained
from train.model.blocks import AdaLNBlock
from train.model.parallelize import check_float8, convert_to_float8

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao warns


def make_block(width: int = 64) -> AdaLNBlock:
    torch.manual_seed(0)
    config = resolve({"model": {"width": width, "heads": 2, "mlp": "swiglu"}}, source="test")
    assert isinstance(config, Pretrain)
    return AdaLNBlock(config)


def test_large_products_are_rounded_and_the_modulation_is_not() -> None:
    with torch.device("meta"):
        block = make_block(1152)
    before = {name: type(module) for name, module in block.named_modules()}
    convert_to_float8([block], emulate=True)
    changed = {name for name, module in block.named_modules() if type(module) is not before[name]}
    # The output of attention, 1152 x 1152, is too small.
    assert changed == {"attention.qkv", "mlp.gate", "mlp.up", "mlp.down"}
    assert {name for name, _ in block.named_parameters()} == {
        name for name, _ in make_block().named_parameters()
    }


def test_the_rounded_block_is_near_the_exact_one_forward_and_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("train.model.parallelize._FLOAT8_LEAST_SIZE", 0)
    torch.manual_seed(1)
    x, condition = torch.randn(2, 16, 64), torch.randn(2, 64)
    results = []
    for emulate in (False, True):
        block: nn.Module = make_block()
        if emulate:
            convert_to_float8([block], emulate=True)
        leaf = x.clone().requires_grad_()
        out = block(leaf, condition, None)
        out.square().sum().backward()
        assert leaf.grad is not None
        results.append((out.detach(), leaf.grad))
    for exact, rounded in zip(*results, strict=True):
        assert 0 < (exact - rounded).norm() / exact.norm() < 0.1


def test_a_machine_without_float8_is_refused(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="needs a GPU; this rank has none"):
        check_float8(torch.device("cpu"))
    monkeypatch.setenv("LOGS", str(tmp_path))
    with pytest.raises(AssertionError, match="needs a GPU; this rank has none"):
        trained(tmp_path, [*TINY, "train.float8=true", "train.compile=true", "train.steps=2"])


@pytest.mark.parametrize("compiled", [False, "auto"])
def test_float8_without_certain_compilation_is_refused(compiled: bool | str) -> None:
    with pytest.raises(ConfigError, match=r"set train\.compile to true"):
        resolve({"train": {"float8": True, "compile": compiled}}, source="test")


def test_an_older_gpu_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100")
    with pytest.raises(ConfigError, match=r"capability 8\.9 .*; NVIDIA A100 has 8\.0"):
        check_float8(torch.device("cuda", 0))
