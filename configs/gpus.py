"""The peak rates, memory and bandwidth of GPUs (`configs/gpus.yaml`)."""

import re
from functools import cache
from pathlib import Path

from pydantic import Field

from configs.errors import ConfigError
from configs.load import read_tree
from configs.schema.key import KeyGroup

FILE = Path(__file__).with_name("gpus.yaml")


class Peaks(KeyGroup):
    """Dense peak rates in TFLOP/s by data type, without sparsity; None: not in hardware."""

    bf16: float | None = Field(default=None, gt=0)
    fp16: float = Field(gt=0)
    tf32: float | None = Field(default=None, gt=0)
    fp32: float = Field(gt=0)


class Gpu(KeyGroup):
    """One GPU; `names` are regular expressions for the model that its driver reports."""

    name: str
    names: list[str] = Field(min_length=1)
    peak_tflops: Peaks
    memory_gb: float = Field(gt=0)
    bandwidth_gb_s: float = Field(gt=0)


@cache
def load_gpus() -> dict[str, Gpu]:
    """Return every GPU by its short name; do not modify it."""
    return {name: Gpu(name=name, **tree) for name, tree in read_tree(FILE).items()}


def find_gpu(model: str) -> Gpu | None:
    """Return the GPU whose driver reports this model name, or None if it is unknown."""
    known = load_gpus().values()
    return next((gpu for gpu in known if any(re.fullmatch(n, model) for n in gpu.names)), None)


def named_gpu(name: str) -> Gpu:
    """Return the GPU that a person calls `name`, in any case of its letters.

    Of a family (`a100`) it is the largest and fastest. Raise `ConfigError`, which lists the known
    GPUs, for any other name.
    """
    short = name.casefold() or "?"
    known = load_gpus().items()
    family = [gpu for full, gpu in known if full == short or full.startswith(f"{short}-")]
    if not family:
        raise ConfigError(f"{name!r} is not a GPU of {FILE.name}; known: {', '.join(load_gpus())}")
    return max(family, key=lambda gpu: (gpu.memory_gb, gpu.bandwidth_gb_s))
