"""LoRA files of other programs keep their scale; 8-bit moments survive a checkpoint exactly."""

from pathlib import Path

import pytest
import torch
from diffusers import FluxTransformer2DModel
from peft.tuners.lora import Linear
from safetensors.torch import load_file, save_file

from configs.schema.finetune import Lora, LoraOptimizer
from finetune.native.lora import (
    LEARNED,
    FusedLora,
    activate,
    active,
    add_learned,
    load_lora,
)
from finetune.native.optimizer import make_optimizer
from train.engine.checkpoint import CheckpointSaver, CheckpointState, load_newest
from train.engine.clocks import Clocks
from train.engine.distributed import process_group, read_ranks
from train.engine.ema import EMA
from train.engine.numerics import LossScaler

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


def test_alpha_in_a_file_of_another_program_is_applied(flux: Path, tmp_path: Path) -> None:
    """A file with rank 4 and alpha 2 equals one whose B is halved."""
    tensors = load_file(flux / "assistant.safetensors")
    halved = {key: t / 2 if ".lora_B." in key else t for key, t in tensors.items()}
    alphas = {
        key.replace("lora_A.weight", "alpha"): torch.tensor(2.0)
        for key in tensors
        if ".lora_A." in key
    }
    save_file(halved, tmp_path / "halved.safetensors")
    save_file(tensors | alphas, tmp_path / "alpha.safetensors")
    found = []
    for file in ("halved", "alpha"):
        folder = flux / "model" / "transformer"
        network = FluxTransformer2DModel.from_pretrained(folder).eval()
        load_lora(network, tmp_path / f"{file}.safetensors", scale=1.0)
        found.append(output(network))
    assert torch.allclose(*found, atol=1e-6)


def test_only_the_learned_lora_takes_gradients_whichever_is_active(
    transformer: FluxTransformer2DModel,
) -> None:
    base = output(transformer)
    weights = add_learned(transformer, Lora(rank=2), seed=0)
    assert torch.equal(output(transformer), base), "B is zero before training"
    for parameter in weights.parameters():
        parameter.data += 0.1
    changed = output(transformer)
    assert not torch.equal(changed, base)
    with active(transformer, after=(LEARNED,)):
        assert torch.equal(output(transformer), base)
    assert torch.equal(output(transformer), changed)
    activate(transformer)
    trained = {name for name, p in transformer.named_parameters() if p.requires_grad}
    assert len(trained) == len(list(weights.parameters()))
    assert all(f".{LEARNED}." in name for name in trained)


def test_8_bit_moments_are_restored_from_a_checkpoint_to_the_bit(
    transformer: FluxTransformer2DModel, tmp_path: Path
) -> None:
    weights = add_learned(transformer, Lora(rank=32), seed=0)

    def state() -> CheckpointState:
        return CheckpointState(
            network=weights,
            parts=[EMA(weights, decay=None, warmup=True)],
            optimizer=make_optimizer(weights, LoraOptimizer(kind="adamw8bit")),
            scaler=LossScaler(fp16=False),
            clocks=Clocks(CPU),
        )

    def moments(of: CheckpointState) -> dict[str, torch.Tensor]:
        found = {
            f"{name}/{moment}": tensor
            for name, kept in of.state_dict()["optimizer"].items()
            for moment, tensor in kept.items()
        }
        return {key: getattr(t, "codes", t) for key, t in found.items()} | {
            f"{key}/scale": t.scale for key, t in found.items() if hasattr(t, "scale")
        }

    before = state()
    for tensor in moments(before).values():
        values = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(1)) * 200
        tensor.copy_(values.to(tensor.dtype))
    assert any(tensor.dtype is torch.uint8 for tensor in moments(before).values())
    with process_group(read_ranks()):
        CheckpointSaver(tmp_path, keep=1).save(before)
        after = state()
        assert load_newest(tmp_path, after)
    expected, found = moments(before), moments(after)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_layer_adds_its_updates_as_peft_does(transformer: FluxTransformer2DModel) -> None:
    weights = add_learned(transformer, Lora(rank=2, alpha=3.0), seed=0)
    for parameter in weights.parameters():
        parameter.data += 0.1
    ours = output(transformer)
    for module in transformer.modules():
        if isinstance(module, FusedLora):
            module.__class__ = Linear
    assert torch.allclose(output(transformer), ours, atol=1e-5)


def test_a_layer_leaves_dropout_to_peft(transformer: FluxTransformer2DModel) -> None:
    add_learned(transformer, Lora(rank=2), seed=0)
    layer = transformer.transformer_blocks[0].attn.to_q
    layer.lora_B[LEARNED].weight.data += 1
    x = torch.ones(1, 4, layer.in_features)
    plain = layer(x)
    layer.lora_dropout[LEARNED] = torch.nn.Dropout(1.0).train()
    assert torch.equal(layer(x), layer.base_layer(x))
    assert not torch.equal(layer(x), plain)
