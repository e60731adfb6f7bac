"""How long a step takes, guessed from its FLOPs; needs no torch."""

from dataclasses import dataclass

from configs.gpus import Gpu
from configs.schema import Pretrain

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


def step_time(config: Pretrain, *, flops: float, gpu: Gpu) -> StepTime | None:
    """Return the seconds of a step; None if the GPU only emulates the precision.

    `flops` are those of one rank.
    """
    tflops: float | None = getattr(gpu.peak_tflops, config.train.precision)
    if tflops is None:
        return None
    seconds = flops / (_MFU * tflops * 1e12)
    source = f"guess: {_MFU:.0%} of peak"
    return StepTime(value=seconds, low=seconds / _FACTOR, high=seconds * _FACTOR, source=source)
