"""Model FLOPs utilisation (MFU) and hardware FLOPs utilisation (HFU) of the reported GPUs.

MFU = 6 x MACs per image x images/s / (dense peak of the GPU x devices), with the MACs from the
manifest, which count adaLN once per image. HFU (Korthikanti et al. 2022, "Reducing activation
recomputation in large transformer models", section 6.3) adds recomputation by activation
checkpointing. An unknown device has neither.
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
    return _share(log, _count(log.facts.get("training_flops_per_image")), images_per_s)


def hfu(log: RunLog, images_per_s: float | None) -> float | None:
    """Return MFU plus recomputed forward MACs, or None if these are not recorded."""
    model = _count(log.facts.get("training_flops_per_image"))
    recomputed = log.facts.get("recomputed_macs_per_image")
    macs = 0.0 if type(recomputed) is int and recomputed == 0 else _count(recomputed)
    return _share(log, None if model is None or macs is None else model + 2 * macs, images_per_s)


def _share(log: RunLog, per_image: float | None, images_per_s: float | None) -> float | None:
    peak = _peak_flops(log.facts)
    if peak is None or per_image is None or images_per_s is None:
        return None
    return per_image * images_per_s / peak


def _count(value: Any) -> float | None:
    """Return a recorded value if it is a number above 0."""
    return float(value) if type(value) in (int, float) and 0 < value < 1e30 else None
