"""Muon has the numbers of the reference, and moves the matrices of the blocks alone."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from configs.errors import ConfigError
from configs.load import load
from configs.schema import Pretrain
from tests.real_runs import DIGITS
from train.cost.fake_gpu import fake_ranks
from train.model.build import build_network
from train.pretrain import optimizer
from train.pretrain.optimizer import (
    Muon,
    join_heads,
    make_optimizer,
    orthogonalized,
    parameter_groups,
    split_heads,
)

SMALL = ["model.width=32", "model.depth=2", "model.heads=2", "optimizer.kind=muon"]


def config_of(*overrides: str) -> Pretrain:
    return load(DIGITS, [*SMALL, *overrides])


# `zeropower_via_newtonschulz5(G, 5)` of KellerJordan/Muon@857d1adc15, muon.py, of the sines of the
# squares of 1 to 12: in float32 (with its cast to bf16 replaced) and as it is.
REFERENCE = {
    torch.float32: [
        [0.798639, -0.312689, 0.188231, -0.214810],
        [-0.251755, -0.572400, -0.558656, 0.569138],
        [-0.719862, -0.312989, 0.606607, -0.234961],
    ],
    torch.bfloat16: [
        [0.8125, -0.296875, 0.2109375, -0.2265625],
        [-0.259765625, -0.5859375, -0.59375, 0.58984375],
        [-0.71484375, -0.3203125, 0.640625, -0.259765625],
    ],
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("is_tall", [False, True])
def test_newton_schulz_gives_the_numbers_of_keller_jordans_code(
    dtype: torch.dtype, tolerance: float, is_tall: bool
) -> None:
    matrix = torch.arange(1.0, 13).square().sin().reshape(3, 4).to(dtype)
    found = orthogonalized(matrix.mT).mT if is_tall else orthogonalized(matrix)
    assert (found.float() - torch.tensor(REFERENCE[dtype])).abs().max() < tolerance


def test_queries_keys_and_values_are_three_matrices() -> None:
    heads, head_dim, width = 2, 4, 8
    rows = torch.arange(3 * width)
    qkv = torch.zeros(3 * width, width) + rows[:, None]
    split = split_heads(qkv, heads)
    assert torch.equal(join_heads(split, heads), qkv)
    query, key, _ = split[:, :, 0]
    assert query.tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert key.tolist() == [4, 5, 6, 7, 16, 17, 18, 19]
    assert split.shape == (3, heads * head_dim, width)


def test_muon_moves_attention_and_mlp_and_adamw_the_rest() -> None:
    config = config_of()
    network = build_network(config)
    names = {parameter: name for name, parameter in network.named_parameters()}
    groups = parameter_groups(network, config)
    adamw, muon = (
        {names[p] for group in groups if ("momentum" in group) == moved for p in group["params"]}
        for moved in (False, True)
    )
    assert adamw | muon == set(names.values())
    first = {name.removeprefix("blocks.0.") for name in muon if name.startswith("blocks.0.")}
    assert first == {
        "attention.qkv.weight", "attention.out.weight", "mlp.up.weight", "mlp.down.weight"
    }  # fmt: skip
    assert len(muon) == 8
    counted = sum(p.numel() for p in network.parameters() if names[p] in muon)
    assert counted == 2 * 12 * config.model.width**2
    state = make_optimizer(network, config).state
    assert {names[parameter] for parameter in state} == muon


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["layout.tensor=2"], "needs whole matrices"),
        (["model.family=unet"], "a U-Net has none"),
    ],
)
def test_muon_is_refused_where_it_cannot_be(keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(*keys)


def moved(monkeypatch: pytest.MonkeyPatch, *, stacked: bool) -> list[Tensor]:
    """Return eight equal weights and three others after a step, with matrices stacked or alone."""
    if stacked:
        monkeypatch.setattr(optimizer, "_rounds", by_shape)
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(12, 8)) for _ in range(8)]
    weights += [nn.Parameter(torch.randn(8, 20)) for _ in range(3)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    group = {"params": weights, "weight_decay": 0.1, "momentum": 0.95, "heads": None}
    Muon([group], lr=0.01, dtype=torch.float32).step()
    return [weight.detach() for weight in weights]


def by_shape(parameters: list[nn.Parameter], ranks: int) -> Iterator[list[nn.Parameter]]:
    yield parameters[:8]
    yield parameters[8:]


def test_stacked_matrices_move_as_single_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, stacked = moved(monkeypatch, stacked=False), moved(monkeypatch, stacked=True)
    torch.testing.assert_close(stacked, alone)


def test_one_message_gathers_the_matrices_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, gather = list[torch.Size](), torch.distributed.all_gather_into_tensor

    def spy(output: Tensor, mine: Tensor) -> object:
        sizes.append(output.shape)
        return gather(output, mine)

    monkeypatch.setattr("torch.distributed.all_gather_into_tensor", spy)
    with fake_ranks(4):
        moved(monkeypatch, stacked=False)
        assert sizes == [(4, 12, 8), (4, 12, 8), (4, 8, 20)]
        sizes.clear()
        moved(monkeypatch, stacked=True)
        assert sizes == [(8, 12, 8), (4, 8, 20)]
