"""Model FLOPs utilisation: what a run computes against what its reported GPUs can do at best.

MFU = 6 x MACs per image x images/s over (dense peak of the GPU x devices), with the MACs that the
manifest carries: adaLN is counted once per image. HFU (Korthikanti et al. 2022, "Reducing
activation recomputation in large transformer models", section 6.3) adds what checkpointing
computes again. Of an unknown device there is neither.
"""

from collections.abc import Mapping
from typing import Any

from analysis.read.machine import gpu, ranks
from analysis.read.run_log import RunLog

# What a manifest calls the types that are computed in, and what `configs/gpus.yaml` does.
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def peak_flops(facts: Mapping[str, Any]) -> float | None:
    """The dense peak of all devices of a run, FLOP/s; None where any of it is not known."""
    from configs.gpus import find_gpu

    model, count, dtypes = gpu(facts), ranks(facts), facts.get("dtypes")
    compute = dtypes.get("compute") if isinstance(dtypes, Mapping) else None
    known = find_gpu(model) if model else None
    if known is None or count is None or not isinstance(compute, str) or compute not in TYPES:
        return None
    return float(getattr(known.peak_tflops, TYPES[compute])) * 1e12 * count


def mfu(log: RunLog, images_per_s: float | None) -> float | None:
    """The share of the peak that the model's own arithmetic comes to (1 = all of it)."""
    return _share(log, _count(log.facts.get("training_flops_per_image")), images_per_s)


def hfu(log: RunLog, images_per_s: float | None) -> float | None:
    """The share with the forward MACs that are done twice; None where these are not recorded."""
    model, again = _count(log.facts.get("training_flops_per_image")), _recomputed(log)
    if model is None or again is None:
        return None
    return _share(log, model + 2 * again, images_per_s)


def _recomputed(log: RunLog) -> float | None:
    """Forward MACs per image that activation checkpointing does again; 0 is known, too."""
    again = log.facts.get("recomputed_macs_per_image")
    return 0.0 if type(again) is int and again == 0 else _count(again)


def naive_mfu(log: RunLog, images_per_s: float | None) -> float | None:
    """The same by 6 x parameters x tokens, as papers on language models count.

    It counts adaLN's parameters, a third of a DiT's, for every token.
    """
    parameters, tokens = _count(log.facts.get("parameters")), _tokens(log)
    if parameters is None or tokens is None:
        return None
    return _share(log, 6 * parameters * tokens, images_per_s)


def _tokens(log: RunLog) -> float | None:
    """Tokens per image: as recorded, else the patches that the config cuts an image into."""
    if "tokens_per_image" in log.facts:
        return _count(log.facts["tokens_per_image"])
    config = log.config or {}
    size, patch = _count(config.get("data.size")), _count(config.get("model.patch"))
    return None if size is None or patch is None else (size // patch) ** 2


def _share(log: RunLog, per_image: float | None, images_per_s: float | None) -> float | None:
    peak = peak_flops(log.facts)
    if peak is None or per_image is None or images_per_s is None:
        return None
    return per_image * images_per_s / peak


def _count(value: Any) -> float | None:
    """A fact that can be counted with: a number above 0."""
    return float(value) if type(value) in (int, float) and 0 < value < 1e30 else None
