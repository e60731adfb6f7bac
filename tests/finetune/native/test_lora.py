"""LoRA files of other programs keep their scale, and layers add their updates as peft does."""

from pathlib import Path

import pytest
import torch
from diffusers import FluxTransformer2DModel
from peft.tuners.lora import Linear

from configs.schema.finetune import Lora
from finetune.native.lora import (
    FusedLora,
    add_learned,
    without_lora,
)

pytestmark = pytest.mark.xdist_group("flux")
CPU = torch.device("cpu")


@pytest.fixture
def transformer(flux: Path) -> FluxTransformer2DModel:
    return FluxTransformer2DModel.from_pretrained(flux / "model" / "transformer").eval()


@torch.no_grad()
def output(transformer: FluxTransformer2DModel) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    settings = transformer.config
    return transformer(
        hidden_states=torch.randn(1, 4, 64, generator=generator),
        encoder_hidden_states=torch.randn(1, 3, settings.joint_attention_dim, generator=generator),
        pooled_projections=torch.randn(1, settings.pooled_projection_dim, generator=generator),
        timestep=torch.tensor([0.5]),
        img_ids=torch.zeros(4, 3),
        txt_ids=torch.zeros(3, 3),
        return_dict=False,
    )[0]


def test_only_the_lora_takes_gradients_and_without_it_the_base_model_is_left(
    transformer: FluxTransformer2DModel,
) -> None:
    base = output(transformer)
    weights = add_learned(transformer, Lora(rank=2), seed=0)
    assert torch.equal(output(transformer), base), "B is zero before training"
    for parameter in weights.parameters():
        parameter.data += 0.1
    changed = output(transformer)
    assert not torch.equal(changed, base)
    with without_lora(transformer):
        assert torch.equal(output(transformer), base)
    assert torch.equal(output(transformer), changed)
    trained = {name for name, p in transformer.named_parameters() if p.requires_grad}
    assert len(trained) == len(list(weights.parameters()))
    assert all(".lora_" in name for name in trained)


def test_a_layer_adds_its_updates_as_peft_does(transformer: FluxTransformer2DModel) -> None:
    weights = add_learned(transformer, Lora(rank=2), seed=0)
    for parameter in weights.parameters():
        parameter.data += 0.1
    ours = output(transformer)
    for module in transformer.modules():
        if isinstance(module, FusedLora):
            module.__class__ = Linear
    assert torch.allclose(output(transformer), ours, atol=1e-5)
