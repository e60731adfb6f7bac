"""How fast a GPU can train at best, by the roofline; imports no torch.

A step takes the time of its matrix products, at a stated share of the GPU's peak, and that of
passing over memory. Communication is left out: no file says how fast a cluster's links are, and
DDP and FSDP hide most of it behind the backward pass where they are fast.
"""

from configs.checks.batch import BatchLayout
from configs.gpus import Gpu
from configs.schema import Pretrain
from train.forecast.memory import Memory, dit_written
from train.model.flops import recomputed_macs, training_flops

# Of the dense peak: what the libraries' products of thousands by thousands reach at their clocks.
PRODUCTS = 0.7
# Of the data sheet's bandwidth: what a kernel that only copies reaches.
COPIES = 0.85
# Each byte of an activation is written, read back, and its gradient is written and read.
PASSES = 4
# Bytes per parameter and step: AdamW reads four numbers and writes three, clipping reads two and
# writes one, the average reads two and writes one.
OPTIMIZER, CLIPPING, AVERAGE = 28, 12, 12


def images_per_s(
    config: Pretrain, layout: BatchLayout, *, memory: Memory, gpu: Gpu, macs: dict[str, int]
) -> float:
    """Images per second of all ranks together, an estimate from above."""
    peak = getattr(gpu.peak_tflops, config.train.precision) * 1e12 * PRODUCTS
    bandwidth = gpu.bandwidth_gb_s * 1e9 * COPIES
    flops = training_flops(macs) + 2 * recomputed_macs(config)
    images = layout.micro_batch * layout.accumulation
    products_s = images * flops / layout.tensor / peak
    is_dit = config.model.family == "dit"
    written = dit_written(config, layout) if is_dit else memory.activations
    passes_s = layout.accumulation * PASSES * written / bandwidth
    each = OPTIMIZER + CLIPPING + AVERAGE * (config.train.ema_decay is not None)
    update_s = memory.parameters / 4 * each / bandwidth
    return config.train.global_batch / (products_s + passes_s + update_s)
