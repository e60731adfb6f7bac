"""Published weights give the outputs of their own code; a mismatch is refused by name."""

import argparse
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiTTransformer2DModel
from torch import Tensor

from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from train.model.build import build_network
from train.weights.load import load_whole_weights

LIKE_DIT = {"positions": "sincos", "qk_norm": False}
State = dict[str, Tensor]


@pytest.fixture(scope="module")
def published() -> Any:
    """A diffusers DiT whose blocks share the embeddings of time and label, as converted ones do."""
    torch.manual_seed(0)
    model: Any = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=3,
        out_channels=6,
        num_layers=3,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=7,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        for block in model.transformer_blocks[1:]:
            block.norm1.emb.load_state_dict(model.transformer_blocks[0].norm1.emb.state_dict())
    return model.eval()


def config_of(init_from: Path, **model: Any) -> Pretrain:
    small = {"width": 32, "depth": 3, "heads": 4, "patch": 2, "init_from": str(init_from)}
    data = {"source": "dummy", "size": 8, "channels": 3, "classes": 7}
    return resolve({"model": small | LIKE_DIT | model, "data": data}, source="test")


def diffusers_timestep_embedding(t: Tensor) -> Tensor:
    """The embedding of diffusers, whose frequencies cover a slightly wider range than DiT's."""
    rates = torch.exp(-math.log(10_000) / 127 * torch.arange(128))
    angles = t[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def output_of(config: Pretrain, published: Any) -> tuple[Tensor, Tensor]:
    """Return the outputs of our network and of diffusers' for the same input."""
    network = build_network(config)
    load_whole_weights(network, config)
    torch.manual_seed(1)
    x, step, label = torch.randn(5, 3, 8, 8), torch.tensor([0, 1, 250, 700, 999]), torch.arange(5)
    with torch.no_grad():
        theirs = published(x, step, label, return_dict=False)[0][:, :3]
        return network(x, step / 1000, label), theirs


def official(model: Any) -> State:
    """Return the same weights with the names and layouts of the official code."""
    theirs: State = model.state_dict()
    emb = "transformer_blocks.0.norm1.emb"
    state = {
        "x_embedder.proj.weight": theirs["pos_embed.proj.weight"],
        "x_embedder.proj.bias": theirs["pos_embed.proj.bias"],
        "y_embedder.embedding_table.weight": theirs[f"{emb}.class_embedder.embedding_table.weight"],
        "pos_embed": torch.zeros(1, 16, 32),
    }
    for part in ("weight", "bias"):
        for ours, number in (("1", "0"), ("2", "2")):
            name = f"{emb}.timestep_embedder.linear_{ours}.{part}"
            state[f"t_embedder.mlp.{number}.{part}"] = theirs[name]
        state[f"final_layer.adaLN_modulation.1.{part}"] = theirs[f"proj_out_1.{part}"]
        state[f"final_layer.linear.{part}"] = theirs[f"proj_out_2.{part}"]
        for n in range(3):
            block = f"transformer_blocks.{n}"
            qkv = [theirs[f"{block}.attn1.to_{letter}.{part}"] for letter in "qkv"]
            state[f"blocks.{n}.attn.qkv.{part}"] = torch.cat(qkv)
            for to, name in (
                ("attn.proj", "attn1.to_out.0"),
                ("mlp.fc1", "ff.net.0.proj"),
                ("mlp.fc2", "ff.net.2"),
                ("adaLN_modulation.1", "norm1.linear"),
            ):
                state[f"blocks.{n}.{to}.{part}"] = theirs[f"{block}.{name}.{part}"]
    return state


@pytest.mark.parametrize("which", ["ema", "model"])
def test_an_official_file_gives_the_outputs_of_diffusers(
    tmp_path: Path, published: Any, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.model.dit.timestep_embedding", diffusers_timestep_embedding)
    weights = official(published)
    zeros = {name: torch.zeros_like(value) for name, value in weights.items()}
    content = {"ema": zeros, "model": zeros} | {which: weights}
    torch.save(content | {"opt": {}, "args": argparse.Namespace(model="S/2")}, tmp_path / "w.pt")
    config = config_of(tmp_path / "w.pt", init_weights=which)
    ours, theirs = output_of(config, published)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"depth": 2}, r"has an extra blocks\.2\.\S+; set model.depth to its 3"),
        ({"depth": 4}, r"lacks blocks\.3\.\S+; set model.depth to its 3"),
        ({"qk_norm": True}, "lacks .*_norm.weight; set model.qk_norm: false"),
        ({"width": 64}, "the config makes it"),
    ],
    ids=str,
)
def test_weights_of_another_size_are_refused_by_name(
    tmp_path: Path, published: Any, model: dict[str, Any], message: str
) -> None:
    torch.save(official(published), tmp_path / "w.pt")
    config = config_of(tmp_path / "w.pt", **model)
    with pytest.raises(ConfigError, match=message):
        load_whole_weights(build_network(config), config)


class _Runs:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("this must not be run",)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.pt", b"not weights"),
        ("w.pt", pickle.dumps({"model": _Runs()})),
        ("w.pt", b""),
    ],
)
def test_a_file_without_weights_is_refused_and_its_code_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    config = config_of(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_whole_weights(build_network(config), config)
    assert "must not be run" not in capsys.readouterr().out
