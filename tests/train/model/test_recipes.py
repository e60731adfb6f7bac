"""The block choices of docs/recipes.md give the outputs of published code, and do what they say."""

import re
from typing import Any

import pytest
import torch
from diffusers import PixArtTransformer2DModel
from torch import Tensor

from tests.train.model.test_dit import config_of, inputs, perturbed
from train.model.build import build_network
from train.model.published import from_published

# From the names of PixArt in diffusers to ours, or to those of the official DiT.
PIXART = {
    r"transformer_blocks\.(\d+)\.scale_shift_table": r"blocks.\1.modulation.table",
    r"scale_shift_table": "table_out",
    r"adaln_single\.linear\.(.*)": r"modulation.\1",
    r"adaln_single\.emb\.timestep_embedder\.linear_1\.(.*)": r"t_embedder.mlp.0.\1",
    r"adaln_single\.emb\.timestep_embedder\.linear_2\.(.*)": r"t_embedder.mlp.2.\1",
    r"pos_embed\.proj\.(.*)": r"x_embedder.proj.\1",
    r"transformer_blocks\.(\d+)\.attn1\.to_out\.0\.(.*)": r"blocks.\1.attn.proj.\2",
    r"transformer_blocks\.(\d+)\.ff\.net\.0\.proj\.(.*)": r"blocks.\1.mlp.fc1.\2",
    r"transformer_blocks\.(\d+)\.ff\.net\.2\.(.*)": r"blocks.\1.mlp.fc2.\2",
    r"proj_out\.(.*)": r"final_layer.linear.\1",
}
OFFICIAL = ("x_embedder.", "t_embedder.", "blocks.", "final_layer.")


def test_adaln_single_gives_the_outputs_of_pixart_in_diffusers() -> None:
    torch.manual_seed(0)
    published: Any = PixArtTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=3,
        out_channels=3,
        num_layers=3,
        cross_attention_dim=None,
        sample_size=8,
        patch_size=2,
    ).eval()
    with torch.no_grad():
        for parameter in published.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model = {"conditioning": "adaln_single", "positions": "sincos", "qk_norm": False}
    network = build_network(config_of(8, 3, width=32, depth=3, heads=4, **model))
    labels = {"label.weight": torch.zeros(6, 32)}  # PixArt has none
    network.load_state_dict(like_ours(published.state_dict()) | labels)
    x, step = torch.randn(5, 3, 8, 8), torch.tensor([0, 1, 250, 700, 999])
    with torch.no_grad():
        theirs = published(x, timestep=step, return_dict=False)[0]
        ours = network(x, step / 1000, torch.arange(5))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def like_ours(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of a PixArt transformer that reads no text."""
    for pattern, ours in PIXART.items():
        state = {re.sub(f"^{pattern}$", ours, name): value for name, value in state.items()}
    tables = {name: value.flatten() for name, value in state.items() if "table" in name}
    shared = {name: value for name, value in state.items() if name.startswith("modulation.")}
    official = {name: value for name, value in state.items() if name.startswith(OFFICIAL)}
    for block in range(3):
        for part in ("weight", "bias"):
            names = [f"transformer_blocks.{block}.attn1.to_{one}.{part}" for one in "qkv"]
            official[f"blocks.{block}.attn.qkv.{part}"] = torch.cat([state[name] for name in names])
    official = {name: value for name, value in official.items() if name not in tables}
    found = from_published(official, heads=4)
    return found | shared | tables


def wave(*shape: int, phase: int, scale: float = 0.5) -> Tensor:
    positions = torch.arange(torch.Size(shape).numel())
    return scale * torch.sin(positions**2 * 0.7 + phase).view(shape)


def test_a_new_network_with_one_modulation_is_the_zero_function_on_identities() -> None:
    network = build_network(config_of(conditioning="adaln_single"))
    assert torch.equal(network(*inputs()), torch.zeros(3, 2, 8, 8))
    tokens, condition = torch.randn(3, 16, 32), network.modulation(torch.randn(3, 32))
    assert torch.equal(network.blocks[0](tokens, condition, None), tokens)


def test_each_block_has_a_table_of_its_own() -> None:
    network = perturbed(config_of(conditioning="adaln_single"))
    plain = network(*inputs())
    first, second = (block.modulation.table for block in network.blocks)
    assert not torch.equal(first, second)
    with torch.no_grad():
        first.zero_()
    assert (network(*inputs()) - plain).abs().max() > 1e-4


@pytest.mark.parametrize("conditioning", ["adaln", "adaln_single"])
def test_registers_are_read_by_attention_and_do_not_rotate(conditioning: str) -> None:
    network = perturbed(config_of(conditioning=conditioning, registers=3))
    plain = network(*inputs())
    assert network.rope.shape[1] == network.prefix + 16
    assert torch.equal(network.rope[0, : network.prefix], torch.ones(network.prefix, 16))
    with torch.no_grad():
        network.registers.neg_()
    assert (network(*inputs()) - plain).abs().max() > 1e-3
