"""A roofline model of the training speed of a GPU: an upper bound, without torch.

A step takes the time of its matrix products at an assumed share of the GPU's peak, plus the time
of its memory traffic. Communication is left out: the speed of a cluster's links is not known here,
and on fast links DDP and FSDP hide most of it behind the backward pass.
"""

from configs.checks.batch import BatchLayout
from configs.gpus import Gpu
from configs.schema import Pretrain
from train.forecast.memory import Memory, dit_written
from train.model.flops import recomputed_macs, training_flops

# The share of the dense peak that library products of thousands by thousands reach in practice.
_MATMUL_EFFICIENCY = 0.7
# The share of the data sheet's bandwidth that a copy kernel reaches.
_COPY_EFFICIENCY = 0.85
# Each byte of an activation is written and read, and so is its gradient.
_PASSES = 4
# Bytes per parameter and step: AdamW reads four numbers and writes three; clipping and the EMA each
# read two and write one.
_OPTIMIZER_BYTES, _CLIPPING_BYTES, _EMA_BYTES = 28, 12, 12


def images_per_s(
    config: Pretrain, layout: BatchLayout, *, memory: Memory, gpu: Gpu, macs: dict[str, int]
) -> float | None:
    """Return an upper bound of the images per second of all ranks together.

    Return None for a GPU that only emulates the precision, which a run would refuse.
    """
    tflops: float | None = getattr(gpu.peak_tflops, config.train.precision)
    if tflops is None:
        return None
    peak = tflops * 1e12 * _MATMUL_EFFICIENCY
    bandwidth = gpu.bandwidth_gb_s * 1e9 * _COPY_EFFICIENCY
    flops = training_flops(macs) + 2 * recomputed_macs(config)
    images = layout.micro_batch * layout.accumulation
    matmul_s = images * flops / layout.tensor / peak
    is_dit = config.model.family == "dit"
    written = dit_written(config, layout) if is_dit else memory.activations
    traffic_s = layout.accumulation * _PASSES * written / bandwidth
    ema_bytes = _EMA_BYTES * (config.train.ema_decay is not None)
    parameter_bytes = _OPTIMIZER_BYTES + _CLIPPING_BYTES + ema_bytes
    update_s = memory.parameters / 4 * parameter_bytes / bandwidth
    return config.train.global_batch / (matmul_s + traffic_s + update_s)
