"""Model FLOPs utilisation (MFU) of the reported GPUs.

MFU = 6 x MACs per image x images/s / (dense peak of the GPU x devices), with the MACs from the
manifest, which count adaLN once per image, and nothing that activation checkpointing repeats. An
unknown device has none.
"""

from collections.abc import Mapping
from typing import Any

from analysis.read.machine import gpu, ranks
from analysis.read.run_log import RunLog
from configs.gpus import find_gpu

# Names of compute dtypes in the manifest, and in `configs/gpus.yaml`.
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "tfloat32": "tf32"}


def _peak_flops(facts: Mapping[str, Any]) -> float | None:
    """Return the dense peak of all devices of a run in FLOP/s, or None if any part is unknown."""
    model, count, dtypes = gpu(facts), ranks(facts), facts.get("dtypes")
    compute = dtypes.get("compute") if isinstance(dtypes, Mapping) else None
    known = find_gpu(model) if model else None
    if known is None or count is None or not isinstance(compute, str) or compute not in TYPES:
        return None
    peak: float | None = getattr(known.peak_tflops, TYPES[compute])
    return None if peak is None else peak * 1e12 * count


def mfu(log: RunLog, images_per_s: float | None) -> float | None:
    """Return the model's own FLOP/s as a share of the peak (1 = all of it)."""
    per_image, peak = _count(log.facts.get("training_flops_per_image")), _peak_flops(log.facts)
    if peak is None or per_image is None or images_per_s is None:
        return None
    found = per_image * images_per_s / peak
    return found if found <= 1 else None  # a batch or a count is wrong


def _count(value: Any) -> float | None:
    """Return a recorded value if it is a number above 0."""
    return float(value) if type(value) in (int, float) and 0 < value < 1e30 else None
