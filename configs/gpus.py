"""The peak rates, memory and bandwidth of GPUs (`configs/gpus.yaml`), and a user's prices."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import Field

from configs.errors import ConfigError, Unreadable
from configs.files import read_text
from configs.load import read_tree
from configs.schema.key import KeyGroup
from configs.yaml12 import parse_yaml

FILE = Path(__file__).with_name("gpus.yaml")


class Peaks(KeyGroup):
    """Dense peak rates in TFLOP/s by data type, without sparsity; None: not in hardware."""

    bf16: float | None = Field(default=None, gt=0)
    fp16: float = Field(gt=0)
    tf32: float | None = Field(default=None, gt=0)
    fp32: float = Field(gt=0)


class Gpu(KeyGroup):
    """One GPU; `names` are regular expressions for the model that its driver reports."""

    names: list[str] = Field(min_length=1)
    peak_tflops: Peaks
    memory_gb: float = Field(gt=0)
    bandwidth_gb_s: float = Field(gt=0)


@cache
def load_gpus() -> dict[str, Gpu]:
    """Return every GPU by its short name; do not modify it."""
    return {name: Gpu.model_validate(tree) for name, tree in read_tree(FILE).items()}


def find_gpu(model: str) -> Gpu | None:
    """Return the GPU whose driver reports this model name, or None if it is unknown."""
    matching = (
        gpu for gpu in load_gpus().values() if any(re.fullmatch(name, model) for name in gpu.names)
    )
    return next(matching, None)


def short_name(model: str) -> str | None:
    """Return the short name of the GPU whose driver reports this model name, None if unknown."""
    gpu = find_gpu(model)
    return next((name for name, known in load_gpus().items() if known is gpu), None)


def gpu_family(name: str) -> dict[str, Gpu]:
    """Return the GPUs that a short name may mean, in any case of its letters.

    `a100` means a100-40gb, a100-80gb-sxm and a100-80gb-pcie.
    """
    short = name.casefold() or "?"
    known = load_gpus().items()
    return {full: gpu for full, gpu in known if full == short or full.startswith(f"{short}-")}


def named_gpu(name: str) -> tuple[str, Gpu]:
    """Return the full short name and the data of the GPU that a person calls `name`.

    Of a family it is the largest and fastest. Raise `ConfigError`, which lists the known GPUs, for
    any other name.
    """
    family = gpu_family(name)
    if not family:
        raise ConfigError(f"{name!r} is not a GPU of {FILE.name}; known: {', '.join(load_gpus())}")
    return max(family.items(), key=lambda one: (one[1].memory_gb, one[1].bandwidth_gb_s))


def gpu_names() -> list[str]:
    """Return the short names of all known GPUs."""
    return list(load_gpus())


def read_rates(path: Path) -> dict[str, float]:
    """Return {GPU: money per GPU-hour} from a YAML file; a name is part of a GPU model's name."""
    try:
        tree = parse_yaml(read_text(path), source=str(path))
    except (ConfigError, OSError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"{path}: cannot be read: {error}") from None
    is_valid = isinstance(tree, dict) and all(
        type(rate) in (int, float) and rate >= 0 for rate in tree.values()
    )
    if not is_valid or not tree:
        raise Unreadable(f"{path}: expected lines such as `A100: 1.80`, the price of a GPU-hour")
    return {str(name): float(rate) for name, rate in tree.items()}


def rate_of(model: str | None, rates: Mapping[str, float]) -> float | None:
    """Return the rate of the longest name that is part of the model's name."""
    fits = [name for name in rates if model and name.lower() in model.lower()]
    return rates[max(fits, key=len)] if fits else None
