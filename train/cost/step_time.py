"""How long a step takes: measured by earlier runs, otherwise guessed from its FLOPs; no torch."""

from dataclasses import dataclass

from configs.checks.batch import BatchLayout
from configs.gpus import Gpu
from train.cost.line import Memory
from train.cost.query import CostQuery

# The share of the dense peak that the FLOPs of a whole step reach: a guess. Public trainers of
# diffusion transformers report 12 to 25 %, their best kernels would reach 50 %.
_MFU = 0.35
# The factor that the guess may be off either way. Stated, not measured.
_FACTOR = 2.0


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds per step, an interval from `low` to `high`, and where they come from."""

    value: float
    low: float
    high: float
    source: str


def step_time(
    query: CostQuery, layout: BatchLayout, *, memory: Memory, gpu: Gpu
) -> StepTime | None:
    """Return a step's seconds on all ranks; None if the GPU only emulates the precision."""
    tflops: float | None = getattr(gpu.peak_tflops, query.config.train.precision)
    if tflops is None:
        return None
    flops = memory.flops * layout.accumulation / min(layout.accumulation, 2)
    return guess(flops / (_MFU * tflops * 1e12))


def guess(seconds: float) -> StepTime:
    """Return guessed seconds with the stated interval."""
    low, high = seconds / _FACTOR, seconds * _FACTOR
    return StepTime(value=seconds, low=low, high=high, source=f"guess: {_MFU:.0%} of the peak")
