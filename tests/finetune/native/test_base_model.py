"""The base model takes the shortest way to its device, and 8-bit weights stay 8-bit weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import FluxTransformer2DModel
from torch import nn
from torch._dynamo.utils import counters

from configs.schema.finetune import Lora
from finetune.native.base_model import load_transformer, quantise_blocks
from finetune.native.lora import FusedLora, LoraWeights, add_learned
from finetune.native.loss import LatentBatch, losses

CPU = torch.device("cpu")


@pytest.mark.parametrize(("quantise", "place"), [("none", "cuda:1"), ("int8", "cpu")])
def test_only_a_model_to_be_quantised_is_loaded_into_host_memory(
    monkeypatch: pytest.MonkeyPatch, quantise: str, place: str
) -> None:
    asked: dict[str, Any] = {}

    def load(folder: Path, **options: Any) -> torch.nn.Module:
        asked.update(options)
        return torch.nn.Linear(1, 1)

    monkeypatch.setattr(FluxTransformer2DModel, "from_pretrained", load)
    load_transformer(Path("flux"), torch.bfloat16, device=torch.device("cuda:1"), quantise=quantise)
    assert asked["device_map"] == {"": torch.device(place)}


def flux(dtype: torch.dtype, quantise: str = "none", **options: Any) -> FluxTransformer2DModel:
    """A random Flux whose weights are numbers of bfloat16."""
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        num_layers=2,
        num_single_layers=2,
        num_attention_heads=2,
        attention_head_dim=32,
        axes_dims_rope=(8, 12, 12),
        joint_attention_dim=64,
        pooled_projection_dim=32,
    )
    transformer = transformer.bfloat16().to(dtype).requires_grad_(False).eval()
    quantise_blocks(transformer, CPU, quantise=quantise)
    return transformer


def with_lora(transformer: FluxTransformer2DModel) -> LoraWeights:
    weights = add_learned(transformer, Lora(rank=4), seed=0)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in weights.named_parameters():
        if "/lora_B/" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 50
    return weights


def batch(dtype: torch.dtype) -> LatentBatch:
    generator = torch.Generator().manual_seed(1)
    latent, noise, prompt, pooled = (
        torch.randn(shape, generator=generator)
        for shape in ((1, 16, 8, 8), (1, 16, 8, 8), (1, 8, 64), (1, 32))
    )
    prompt, pooled = prompt.bfloat16().to(dtype), pooled.bfloat16().to(dtype)
    return LatentBatch(
        latent=latent, noise=noise, t=torch.tensor([0.5]), prompt=prompt, pooled=pooled
    )


@pytest.mark.parametrize("quantise", ["none", "int8", "float8"])
def test_layers_return_the_type_of_the_base_model(quantise: str) -> None:
    transformer = flux(torch.bfloat16, quantise)
    with_lora(transformer)
    found = {}
    for name, module in transformer.named_modules():
        if isinstance(module, nn.Linear | FusedLora | nn.LayerNorm | nn.RMSNorm):
            module.register_forward_hook(
                lambda _, inputs, output, name=name: found.update({name: output.dtype})
            )
    with torch.no_grad():
        losses(transformer, batch(torch.bfloat16))
    assert len(found) > 60
    assert set(found.values()) == {torch.bfloat16}


def test_gradients_in_bf16_are_those_of_float32_within_its_rounding() -> None:
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        transformer = flux(dtype)
        weights = with_lora(transformer)
        losses(transformer, batch(dtype)).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in weights.parameters()]))
    exact, rounded = gradients
    assert rounded.dtype == torch.float32
    assert (rounded - exact).norm() < 0.02 * exact.norm()


@pytest.mark.long
def test_compiled_blocks_trace_as_a_whole_and_give_the_same_gradients() -> None:
    counters.clear()
    gradients = []
    for compiles in (False, True):
        transformer = flux(torch.bfloat16)
        transformer.enable_gradient_checkpointing()
        weights = with_lora(transformer)
        if compiles:
            transformer.compile_repeated_blocks()
        losses(transformer, batch(torch.bfloat16)).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in weights.parameters()]))
    eager, compiled = gradients
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 4
    assert (compiled - eager).norm() < 0.02 * eager.norm()
