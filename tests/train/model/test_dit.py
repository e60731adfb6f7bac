"""The DiT: zero at the start, shaped as its input, and as expensive as its closed forms say."""

from typing import Any

import pytest
import torch
from torch import Tensor

from configs.load import resolve
from configs.schema import Pretrain
from train.model.attention import (
    attend,
    rope_table,
    rotate,
)
from train.model.build import build_network, network_macs
from train.model.dit import DiT

SIZES = {
    "S": {"width": 384, "depth": 12, "heads": 6},
    "B": {"width": 768, "depth": 12, "heads": 12},
    "L": {"width": 1024, "depth": 24, "heads": 16},
    "XL": {"width": 1152, "depth": 28, "heads": 16},
}
# Peebles & Xie 2023, table 4, "Gflops" (they are multiply-accumulates); S/8 computes to .358.
GMACS = {
    "S/8": 0.36, "S/4": 1.41, "S/2": 6.06, "B/8": 1.42, "B/4": 5.56, "B/2": 23.01,
    "L/8": 5.01, "L/4": 19.70, "L/2": 80.71, "XL/8": 7.39, "XL/4": 29.05, "XL/2": 118.64,
}  # fmt: skip


# Every choice of parts except the default.
VARIANTS = [
    {"mlp": "swiglu"},
    {"positions": "sincos"},
    {"positions": "sincos", "mlp": "swiglu", "qk_norm": False},
    {"conditioning": "adaln_single", "registers": 3},
]
# Width, depth, heads and number of parameters of the larger flavours.
FLAVOURS = {
    "0.5B": (1024, 24, 16, 0.46e9),
    "1B": (1536, 32, 32, 1.37e9),
    "7B": (2560, 60, 64, 7.13e9),
}


def config_of(size: int = 8, channels: int = 2, classes: int = 5, **model: float | str) -> Pretrain:
    data = {"source": "dummy", "size": size, "channels": channels, "classes": classes}
    small = {"width": 32, "depth": 2, "heads": 2, "patch": 2}
    return resolve({"model": small | model, "data": data}, source="test")


def paper_config(name: str, *, size: int = 32) -> Pretrain:
    letters, _, patch = name.partition("/")
    return config_of(size=size, channels=4, classes=1000, patch=int(patch), **SIZES[letters])


def perturbed(config: Pretrain) -> DiT:
    """Return a network in which no weight is zero, as after some training."""
    network = build_network(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return network


def inputs(batch: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    label = torch.randint(5, (batch,))
    return torch.randn(batch, 2, 8, 8), torch.rand(batch), label


def test_a_new_network_is_the_zero_function() -> None:
    network = build_network(config_of())
    assert torch.equal(network(*inputs()), torch.zeros(3, 2, 8, 8))


def test_a_new_block_is_the_identity() -> None:
    block = build_network(config_of()).blocks[0]
    tokens = torch.randn(3, 16, 32)
    assert torch.equal(block(tokens, torch.randn(3, 32), rope_table(4, 16)), tokens)


@pytest.mark.parametrize("model", [{"patch": 1}, {"patch": 4}, *VARIANTS], ids=str)
def test_the_output_has_the_shape_of_the_input(model: dict[str, Any]) -> None:
    network = perturbed(config_of(**model))
    assert network(*inputs()).shape == (3, 2, 8, 8)


@pytest.mark.parametrize("model", [{}, *VARIANTS], ids=str)
def test_every_parameter_gets_a_gradient_and_no_buffer_is_saved(model: dict[str, Any]) -> None:
    network = perturbed(config_of(**model))
    network(*inputs()).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in network.parameters())
    assert set(network.state_dict()) == {name for name, _ in network.named_parameters()}


@pytest.mark.parametrize("model", [{}, *VARIANTS], ids=str)
def test_the_image_the_time_and_the_label_each_matter(model: dict[str, Any]) -> None:
    network = perturbed(config_of(**model))
    x, t, label = inputs()
    plain = network(x, t, label)
    null = torch.full_like(label, network.null_label)
    for other in (network(x + 1, t, label), network(x, 1 - t, label), network(x, t, null)):
        assert (other - plain).abs().max() > 1e-3


@pytest.mark.parametrize("name", GMACS)
def test_macs_are_those_of_the_paper(name: str) -> None:
    assert with_variance(paper_config(name)) == pytest.approx(GMACS[name], rel=0.002, abs=0.005)


def with_variance(config: Pretrain) -> float:
    """Return the GMACs of a network with twice the outputs: the paper's also predict a variance."""
    size, channels = config.data.size, config.data.channels
    return (sum(network_macs(config).values()) + size**2 * channels * config.model.width) / 1e9


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_larger_flavours_have_their_parameters(flavour: str) -> None:
    width, depth, heads, parameters = FLAVOURS[flavour]
    config = config_of(64, 16, 1000, width=width, depth=depth, heads=heads, patch=2)
    with torch.device("meta"):
        network = build_network(config)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(parameters, rel=0.01)


def test_rotated_products_depend_on_relative_position_only() -> None:
    side, head_dim = 6, 16
    torch.manual_seed(0)
    table = rope_table(side, head_dim)
    q, k = torch.randn(2, head_dim)
    rotated_q, rotated_k = (rotate(x.expand(side * side, -1), table) for x in (q, k))
    products = (rotated_q @ rotated_k.T).view(side, side, side, side)
    difference = products[:-1, :-2, :-1, :-2] - products[1:, 2:, 1:, 2:]
    assert difference.abs().max() < 1e-4
    assert products.std() > 1e-2
    torch.testing.assert_close(products[0, 0, 0, 0], q @ k)


def test_queries_and_keys_of_any_length_give_the_same_scores_when_normalised() -> None:
    block = perturbed(config_of()).blocks[0]
    attention, rope, x = block.attention, rope_table(4, 16), torch.randn(2, 16, 32)
    plain = attention(x, rope)
    with torch.no_grad():
        for tensor in (attention.qkv.weight, attention.qkv.bias):
            tensor.view(2, 3, 16, -1)[:, :2] *= 10
    torch.testing.assert_close(attention(x, rope), plain, rtol=1e-3, atol=1e-4)


def test_attention_in_bf16_on_a_cpu_is_the_attention_of_float32() -> None:
    torch.manual_seed(0)
    qkv = torch.randn(3, 2, 4, 64, 16)
    exact = qkv.clone().requires_grad_()
    rounded = qkv.bfloat16().requires_grad_()
    for leaf in (exact, rounded):
        attend(*leaf).square().sum().backward()
    torch.testing.assert_close(attend(*rounded).float(), attend(*exact), rtol=0.02, atol=0.02)
    assert exact.grad is not None
    assert rounded.grad is not None
    error = (rounded.grad.float() - exact.grad).norm() / exact.grad.norm()
    assert error < 0.02


def test_bf16_autocast_is_close_to_float32() -> None:
    network = perturbed(config_of())
    exact = network(*inputs())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(*inputs())
    error = (rounded.float() - exact).norm() / exact.norm()
    assert 0 < error < 0.02


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # the compiler warns
@pytest.mark.parametrize("bf16", [False, True])
def test_a_compiled_block_equals_the_eager_one(bf16: bool) -> None:
    torch.manual_seed(0)
    block = perturbed(config_of()).blocks[0]
    x = torch.randn(3, 16, 32)
    arguments = torch.randn(3, 32), rope_table(4, 16)
    compiled = torch.compile(block, fullgraph=True)
    results = []
    for run in (block, compiled):
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = run(leaf, *arguments)
        out.float().square().sum().backward()
        assert leaf.grad is not None
        results.append((out.detach().float(), leaf.grad))
    tolerance = 0.05 if bf16 else 1e-5
    for eager, other in zip(*results, strict=True):
        assert (eager - other).norm() / eager.norm() < tolerance
