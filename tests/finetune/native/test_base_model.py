"""Layers with a LoRA compute in the type of the base model."""

import torch
from diffusers import FluxTransformer2DModel
from torch import nn

from configs.schema.finetune import Lora
from finetune.native.lora import FusedLora, LoraWeights, add_learned
from finetune.native.loss import LatentBatch, losses


def flux(dtype: torch.dtype) -> FluxTransformer2DModel:
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
    return transformer.bfloat16().to(dtype).requires_grad_(False).eval()


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


def test_layers_return_the_type_of_the_base_model() -> None:
    transformer = flux(torch.bfloat16)
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
