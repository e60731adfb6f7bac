"""Layers with a LoRA compute in the type of the base model."""

import torch
from diffusers import FluxTransformer2DModel
from torch import nn

from configs.schema.finetune import Lora
from finetune.native.lora import FusedLora, add_learned
from finetune.native.loss import LatentBatch, losses


def test_layers_return_the_type_of_the_base_model() -> None:
    transformer = FluxTransformer2DModel(
        num_layers=2,
        num_single_layers=2,
        num_attention_heads=2,
        attention_head_dim=32,
        axes_dims_rope=(8, 12, 12),
        joint_attention_dim=64,
        pooled_projection_dim=32,
    ).bfloat16()
    add_learned(transformer, Lora(rank=4), seed=0)
    batch = LatentBatch(
        latent=torch.randn(1, 16, 8, 8),
        noise=torch.randn(1, 16, 8, 8),
        t=torch.tensor([0.5]),
        prompt=torch.randn(1, 8, 64).bfloat16(),
        pooled=torch.randn(1, 32).bfloat16(),
    )
    found = {}
    for name, module in transformer.named_modules():
        if isinstance(module, nn.Linear | FusedLora | nn.LayerNorm | nn.RMSNorm):
            module.register_forward_hook(
                lambda _, inputs, output, name=name: found.update({name: output.dtype})
            )
    with torch.no_grad():
        losses(transformer, batch)
    assert len(found) > 60
    assert set(found.values()) == {torch.bfloat16}
