"""`python -m finetune cost`: the memory and FLOPs of a LoRA by the native engine, without a GPU.

A step runs on fake tensors, as in pretraining (`train/cost`). The sizes are those of the model's
own config, or of FLUX.1 if its folder is not here. `train.compile` counts as eager.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.checks.batch import BatchLayout
from configs.schema import Finetune
from configs.terminal import command_parser
from train.cost.command import answer
from train.cost.kept import kept_cost
from train.cost.line import Memory, RunCost, Stack

# Parameters of the text encoders and of the VAE, and the most bytes per pixel that the VAE holds:
# in float32 when it encodes, in bf16 when it decodes. Counted on tensors without data.
_ENCODERS, _VAE, _ENCODING_PX, _DECODING_PX = 4_885_000_000, 83_819_683, 2572, 1537
_SIZES = {
    "num_layers": 19, "num_single_layers": 38, "num_attention_heads": 24, "in_channels": 64,
    "attention_head_dim": 128, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
}  # fmt: skip
_AXES = "axes_dims_rope"
# The stacks of blocks of the transformer, and the keys of their depths.
_STACKS = {"transformer_blocks": "num_layers", "single_transformer_blocks": "num_single_layers"}


def main(arguments: list[str]) -> int:
    """Answer for LoRAs, as `python -m train cost` does for pretraining."""
    command_parser("finetune cost", __doc__).parse_args(arguments)
    return answer(kind=Finetune, memory_of=lora_memory)


def lora_memory(config: Finetune, layout: BatchLayout) -> Memory:
    """Return the memory of one rank: of a step at the largest size, encoding or samples.

    Text encoders, or the VAE in float32, are on the GPU before the transformer is; samples are
    decoded beside it.
    """
    found = step_memory(config, layout)
    vae, size = 4 if config.train.precision == "fp32" else 2, max(config.data.resolutions)
    held = found.parameters + found.optimizer + found.average + vae * _VAE
    decoded = _DECODING_PX * config.sample.width * config.sample.height * vae / 2
    encoding = max(vae * _ENCODERS, 4 * _VAE + _ENCODING_PX * size**2)
    peak = max(found.peak + vae * _VAE, held + decoded, encoding)
    return dataclasses.replace(found, parameters=found.parameters + vae * _VAE, peak=peak)


def step_memory(config: Finetune, layout: BatchLayout) -> Memory:
    """Return the memory of a step at the largest size, without the VAE."""
    sizes = transformer_sizes(config)
    stacks = {name: Stack(depth=sizes[key]) for name, key in _STACKS.items()}
    train, least = config.train, {key: stacks[name].small() for name, key in _STACKS.items()}
    facts = {
        "lora": config.lora.model_dump(mode="json"),
        "sizes": sizes | least,
        "whole": [stack.small() == stack.depth for stack in stacks.values()],
        "flux": [config.flux.variant, config.flux.text_tokens],
        "train": [train.precision, train.gradient_checkpointing, train.ema_decay is not None],
        "size": max(config.data.resolutions),
        "ranks": layout.world > 1,
    }

    def count() -> RunCost:
        return _count(config, layout, stacks, sizes)

    depths = {name: stack.depth for name, stack in stacks.items()}
    return kept_cost(facts, count).memory(layout.micro_batch, layout.accumulation, depths)


def transformer_sizes(config: Finetune) -> dict[str, Any]:
    """Return the sizes of the config's transformer by their names in its `config.json`."""
    try:
        file = Path(str(config.flux.folder)) / "transformer" / "config.json"
        found = json.loads(file.read_text(encoding="utf-8"))
        known = {name: value for name, value in found.items() if name in (*_SIZES, _AXES)}
    except (OSError, ValueError, AttributeError):
        known = {}
    return _SIZES | known


def _count(
    config: Finetune, layout: BatchLayout, stacks: Mapping[str, Stack], sizes: dict[str, Any]
) -> RunCost:
    # Imported here: torch takes seconds to import.
    from finetune.native.fake_step import two_steps
    from train.cost.fit import Trial, fit_cost

    def run(images: int, depths: Mapping[str, int]) -> tuple[Trial, Trial]:
        smaller = sizes | {_STACKS[name]: depth for name, depth in depths.items()}
        return two_steps(config, dataclasses.replace(layout, micro_batch=images), smaller)

    return fit_cost(run, stacks, images=2)
