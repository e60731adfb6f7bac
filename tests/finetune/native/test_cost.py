"""The cost of a LoRA is that of a step of the whole transformer, and of real allocations."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory_count import added_bytes
from configs.checks.batch import divide
from configs.load import load
from configs.schema import Finetune
from finetune.native.cost import lora_memory, step_memory, transformer_sizes
from finetune.native.fake_step import flux_transformer, two_steps, zero_batch
from finetune.native.lora import LEARNED, activate, add_learned
from finetune.native.loss import losses
from finetune.native.step import make_optimizer
from train.engine.ema import EMA

CONFIG = Path("configs/finetune/flux-schnell-500.yaml")
SIZES = {
    "num_layers": 5, "num_single_layers": 6, "num_attention_heads": 4, "attention_head_dim": 32,
    "axes_dims_rope": [8, 12, 12], "joint_attention_dim": 64, "pooled_projection_dim": 32,
}  # fmt: skip


def config_of(folder: Path, *words: str, **sizes: Any) -> Finetune:
    """Return the config of a LoRA of a small transformer in `folder`."""
    (folder / "transformer").mkdir(exist_ok=True)
    (folder / "transformer" / "config.json").write_text(json.dumps(SIZES | sizes))
    own = [f"flux.folder={folder}", "flux.assistant_lora=null", "flux.text_tokens=32",
           "train.gradient_checkpointing=false", "train.global_batch=4"]  # fmt: skip
    found = load(CONFIG, [*own, "data.resolutions=[256]", *words])
    assert isinstance(found, Finetune)
    return found


def compare(config: Finetune, *, world: int = 1) -> None:
    layout = divide(config, world=world)
    whole = two_steps(config, layout, transformer_sizes(config))[layout.accumulation > 1]
    found = step_memory(config, layout)
    assert found.peak == pytest.approx(whole.peak(), rel=0.01)
    for kind, size in whole.kinds.items():
        assert getattr(found, kind) == pytest.approx(size, rel=0.01), kind


@pytest.mark.parametrize(
    ("words", "world"),
    [
        ([], 1),
        (["train.gradient_checkpointing=true"], 1),
        (["train.micro_batch=2"], 1),
        (["train.precision=fp32"], 2),
    ],
)
def test_a_few_blocks_of_each_kind_give_the_cost_of_all(
    tmp_path: Path, words: list[str], world: int
) -> None:
    compare(config_of(tmp_path, *words), world=world)


def test_the_flops_are_those_of_products_and_attention(tmp_path: Path) -> None:
    """Three passes of the base with checkpointing, four of the LoRA, two and 5 / 2 of attention."""
    words = ["train.gradient_checkpointing=true", "train.global_batch=1", "lora.rank=8"]
    config = config_of(tmp_path, *words, num_layers=1, num_single_layers=24)
    found = step_memory(config, divide(config, world=1))
    text, image, d, heads = 32, 256, 128, 4 * 32
    blocks = 1 + 24
    base = 2 * 12 * d * d * (text + image) * blocks
    attention = 2 * 2 * (text + image) ** 2 * heads * blocks
    # The update of the matrices that the config tunes: all of attention and MLP.
    sizes = [(d, d)] * 3 + [(d, 4 * d), (5 * d, d)]
    update = 2 * 8 * sum(a + b for a, b in sizes) * (text + image) * blocks
    expected = 3 * base + 4 * update + 4.5 * attention
    assert found.flops == pytest.approx(expected, rel=0.03)


def test_text_encoders_can_be_the_peak(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    layout = divide(config, world=1)
    step, whole = step_memory(config, layout), lora_memory(config, layout)
    assert step.peak < 2 * 4_885_000_000 == whole.peak


@pytest.mark.parametrize("again", [False, True], ids=["kept", "recomputed"])
def test_real_steps_allocate_what_was_counted(tmp_path: Path, *, again: bool) -> None:
    words = [f"train.gradient_checkpointing={str(again).lower()}", "train.precision=fp32"]
    config = config_of(tmp_path, *words)
    layout = divide(config, world=1)
    sizes = transformer_sizes(config)
    transformer = flux_transformer(config, sizes)
    weights = add_learned(transformer, config.lora, seed=0)
    activate(transformer, LEARNED)
    optimizer, ema = make_optimizer(weights, config.optimizer), EMA(weights, decay=0.9, warmup=True)

    def step() -> None:
        losses(transformer, zero_batch(config, sizes, layout.micro_batch)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ema.update(1)

    step()
    most = added_bytes(step)
    counted = step_memory(config, dataclasses.replace(layout, accumulation=1))
    constant = counted.parameters + counted.optimizer + counted.average
    assert constant + most == pytest.approx(counted.peak, rel=0.02)
