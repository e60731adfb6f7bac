"""JiT computes what its published code computes, and trains like any other family."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from tests.real_runs import losses, resumed, trained
from train.model.build import build_network, network_macs
from train.weights.load import load_whole_weights

# Every 1/6 of the outputs of the network below: model_jit.py of LTH14/JiT, as copied in
# king398/DiffusionFusion@eae56df, with the weights of `published` (no GPU, no compilation).
OUTPUTS = {
    (16, 32): [1.7285311, 1.6535239, -0.3975573, 2.2027695, 1.3334048, -1.0739467],
    (32, 64): [2.1695182, 0.5456787, -1.5381345, 2.0601256, 1.4100161, -0.8829237],
    (2, 8): [2.2804575, 1.5189047, -1.0344934, 2.1258273, 1.3292149, -0.999651],
}
SMALL = [
    "model.family=jit", "model.width=48", "model.depth=3", "model.heads=2",
    "model.jit.bottleneck=3", "model.jit.class_tokens=2", "model.jit.class_tokens_from=1",
    "objective.prediction=x", "log.every=1", "log.tensorboard=false", "sample.per_class=1",
    "sample.steps=2", "train.steps=6", "optimizer.lr=1e-3",
]  # fmt: skip


def config_of(*, patch: int = 16, size: int = 32, **model: Any) -> Pretrain:
    jit = {"bottleneck": 6, "class_tokens": 3, "class_tokens_from": 1}
    sizes = {"family": "jit", "width": 32, "depth": 3, "heads": 2, "patch": patch, "jit": jit}
    data = {"source": "dummy", "size": size, "channels": 3, "classes": 5}
    tree = {"model": sizes | model, "data": data, "objective": {"prediction": "x"}}
    return resolve(tree, source="test")


def wave(*shape: int, rate: float) -> Tensor:
    values = np.sin(rate * np.arange(1, np.prod(shape) + 1))
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def published(patch: int) -> dict[str, Tensor]:
    """Weights by the names and of the shapes of the published code."""
    block = {
        "adaLN_modulation.1.bias": (192,), "adaLN_modulation.1.weight": (192, 32),
        "attn.k_norm.weight": (16,), "attn.proj.bias": (32,), "attn.proj.weight": (32, 32),
        "attn.q_norm.weight": (16,), "attn.qkv.bias": (96,), "attn.qkv.weight": (96, 32),
        "mlp.w12.bias": (170,), "mlp.w12.weight": (170, 32), "mlp.w3.bias": (32,),
        "mlp.w3.weight": (32, 85), "norm1.weight": (32,), "norm2.weight": (32,),
    }  # fmt: skip
    values = 3 * patch**2
    shapes = {f"blocks.{n}.{name}": shape for n in range(3) for name, shape in block.items()} | {
        "final_layer.adaLN_modulation.1.bias": (64,),
        "final_layer.adaLN_modulation.1.weight": (64, 32), "final_layer.linear.bias": (values,),
        "final_layer.linear.weight": (values, 32), "final_layer.norm_final.weight": (32,),
        "in_context_posemb": (1, 3, 32), "t_embedder.mlp.0.bias": (32,),
        "t_embedder.mlp.0.weight": (32, 256), "t_embedder.mlp.2.bias": (32,),
        "t_embedder.mlp.2.weight": (32, 32), "x_embedder.proj1.weight": (6, 3, patch, patch),
        "x_embedder.proj2.bias": (32,), "x_embedder.proj2.weight": (32, 6, 1, 1),
        "y_embedder.embedding_table.weight": (6, 32),
    }  # fmt: skip
    return {
        name: 0.3 * wave(*shapes[name], rate=0.1 + 0.01 * k)
        + ("norm" in name and name.endswith("weight"))
        for k, name in enumerate(sorted(shapes))
    }


@pytest.mark.parametrize(("patch", "size"), OUTPUTS)
def test_published_weights_have_the_outputs_of_the_published_code(
    patch: int, size: int, tmp_path: Path
) -> None:
    torch.save(published(patch), tmp_path / "jit.pth")
    config = config_of(patch=patch, size=size, init_from=str(tmp_path / "jit.pth"))
    network = build_network(config).eval()
    load_whole_weights(network, config)
    x, t = wave(2, 3, size, size, rate=0.37), torch.tensor([0.1, 0.8])
    with torch.no_grad():
        found = network(x, t, torch.tensor([1, 5])).flatten()
    expected = torch.tensor(OUTPUTS[patch, size])
    torch.testing.assert_close(found[:: len(found) // 6][:6], expected, rtol=1e-4, atol=1e-5)


def test_a_new_network_is_the_zero_function() -> None:
    config = config_of()
    x, t, label = wave(2, 3, 32, 32, rate=0.1), torch.rand(2), torch.tensor([0, 5])
    assert not build_network(config)(x, t, label).any()
    assert network_macs(config)["products"] > 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"registers": 1}, "model.registers is for model.family dit"),
        ({"depth": 1}, "class_tokens_from 1 leaves no block"),
        ({"patch": 3}, "not a multiple of model.patch"),
    ],
)
def test_what_a_jit_cannot_do_is_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(**model)


@pytest.mark.parametrize(
    "layout",
    [[], ["layout.shard=2"], pytest.param(["layout.tensor=2"], marks=pytest.mark.long)],
    ids=str,
)
@pytest.mark.xdist_group("ranks")
def test_every_layout_has_the_losses_of_one_rank_and_resumes_to_the_bit(layout: list[str]) -> None:
    keys = [*SMALL, "checkpoint.every=3"]
    one, two = trained(keys), trained([*keys, *layout], ranks=2)
    assert losses(two) == pytest.approx(losses(one), rel=1e-5)
    again = losses(resumed(two, step=3, ranks=2))
    assert again == {step: loss for step, loss in losses(two).items() if step > 3}


@pytest.mark.xdist_group("ranks")
def test_ranks_that_do_not_divide_the_hidden_layer_are_refused(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(AssertionError, match=r"does not divide the 85 outputs of mlp\.gate"):
        trained([*SMALL, "model.width=32", "layout.tensor=2"], ranks=2)
