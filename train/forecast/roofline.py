"""A roofline model of the training speed of a GPU: a guess, without torch.

A step takes the time of its matrix products at an assumed share of the GPU's peak, plus the time
of its counted memory traffic; no GPU has confirmed a rate. Communication is left out: the speed of
a cluster's links is not known here, and on fast links DDP and FSDP hide most of it behind the
backward pass.
"""

from dataclasses import dataclass

from configs.checks.batch import BatchLayout
from configs.gpus import Gpu
from configs.schema import Pretrain
from train.forecast.memory import Memory, dit_written
from train.model.flops import (
    extra_macs,
    newton_schulz_flops,
    recomputed_macs,
    training_flops,
    training_macs,
)

# How many times as long as other products attention takes, per multiply-accumulate. Assumed.
ATTENTION_SLOWDOWN = 2.5
# The share of the data sheet's bandwidth that a copy kernel reaches. Assumed.
COPY_EFFICIENCY = 0.87
# The bytes that forward and backward pass of a block move, per byte that it saves for the backward
# pass. Counted by `benchmarks.block_traffic` for a block of DiT-XL/2 in bf16: 550 of 60.3 bytes per
# token and channel eager, 168 of 38.2 compiled (docs/measurements/block-traffic.md). With SwiGLU
# they are within 10 % of the count; without RoPE and QK norm 9 % above it compiled, 40 % eager.
# A U-Net is not counted, but taken to be the same.
_EAGER_PASSES, _COMPILED_PASSES = 9.1, 4.4
# Bytes per parameter and step: AdamW reads four numbers and writes three; clipping and the EMA each
# read two and write one.
_OPTIMIZER_BYTES, _CLIPPING_BYTES, _EMA_BYTES = 28, 12, 12
# The factor that a step by a data sheet may be off either way. Stated, not measured: products
# reach at most 1/0.63 = 1.6 of the assumed share of the peak; the time of the host, of the network
# between ranks and of a lower power limit is not in it.
_SHEET_FACTOR = 2.0


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds per step, the stated interval from `low` to `high`, and where they come from."""

    value: float
    low: float
    high: float
    source: str


def sheet_step(seconds: float) -> StepTime:
    """Return a step's guessed seconds with the stated interval of rates from a data sheet."""
    low, high = seconds / _SHEET_FACTOR, seconds * _SHEET_FACTOR
    return StepTime(value=seconds, low=low, high=high, source="guess by data sheet")


def step_time(
    config: Pretrain, layout: BatchLayout, *, memory: Memory, gpu: Gpu, macs: dict[str, int]
) -> StepTime | None:
    """Return a step's seconds on all ranks; None if the GPU only emulates the precision."""
    tflops: float | None = getattr(gpu.peak_tflops, config.train.precision)
    if tflops is None:
        return None
    matmul_flops_s = tflops * 1e12 * gpu.matmul_share
    bandwidth = gpu.bandwidth_gb_s * 1e9 * COPY_EFFICIENCY
    is_dit = config.model.family == "dit"
    macs = training_macs(config) if is_dit else macs
    timed = macs | {"attention": round(ATTENTION_SLOWDOWN * macs.get("attention", 0))}
    flops = training_flops(timed | extra_macs(config)) + 2 * recomputed_macs(config)
    images = layout.micro_batch * layout.accumulation
    matmul_s = images * flops / layout.tensor / matmul_flops_s
    written = dit_written(config, layout) if is_dit else memory.activations
    passes = _COMPILED_PASSES if config.train.compile else _EAGER_PASSES
    traffic_s = layout.accumulation * passes * written / bandwidth
    ema_bytes = _EMA_BYTES * (config.train.ema_decay is not None)
    parameter_bytes = _OPTIMIZER_BYTES + _CLIPPING_BYTES + ema_bytes
    update_s = memory.parameters / 4 * parameter_bytes / bandwidth
    # Muon's ranks share its matrices.
    update_s += newton_schulz_flops(config) / layout.world / matmul_flops_s
    return sheet_step(matmul_s + traffic_s + update_s)
