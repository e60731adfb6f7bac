"""The peak rates, memory and bandwidth of GPUs (`configs/gpus.yaml`)."""

import re
from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from configs.errors import ConfigError
from configs.load import read_tree
from configs.schema.key import KeyGroup

FILE = Path(__file__).with_name("gpus.yaml")


class Peaks(KeyGroup):
    """Dense peak rates in TFLOP/s by data type, without sparsity."""

    bf16: float = Field(gt=0)
    fp16: float = Field(gt=0)
    tf32: float = Field(gt=0)
    fp32: float = Field(gt=0)


class Gpu(KeyGroup):
    """One GPU; `names` are patterns for the model that its driver reports."""

    names: list[str] = Field(min_length=1)
    peak_tflops: Peaks
    memory_gb: float = Field(gt=0)
    bandwidth_gb_s: float = Field(gt=0)

    @field_validator("names")
    @classmethod
    def _are_patterns(cls, names: list[str]) -> list[str]:
        for name in names:
            try:
                re.compile(name)
            except re.error as error:
                raise ValueError(f"{name!r} is not a regular expression ({error})") from None
        return names


def load_gpus(path: Path = FILE) -> dict[str, Gpu]:
    """Return every GPU by its short name; raise `ConfigError` if the file is malformed."""
    found = {}
    for name, tree in read_tree(path).items():
        try:
            found[name] = Gpu.model_validate(tree)
        except ValidationError as error:
            lines = (
                f"{path}: {'.'.join([name, *map(str, item['loc'])])}: {item['msg']}"
                for item in error.errors()
            )
            raise ConfigError("\n".join(lines)) from None
    return found


@cache
def _shipped() -> dict[str, Gpu]:
    return load_gpus()


def find_gpu(model: str) -> Gpu | None:
    """Return the GPU whose driver reports this model name, or None if it is unknown."""
    matching = (
        gpu for gpu in _shipped().values() if any(re.fullmatch(name, model) for name in gpu.names)
    )
    return next(matching, None)


def named_gpu(name: str) -> tuple[str, Gpu]:
    """Return the full short name and the data of the GPU that a person calls `name`.

    `a100` means the largest and fastest of a100-40gb, a100-80gb-sxm and a100-80gb-pcie. Raise
    `ConfigError`, which lists the known GPUs, for any other name.
    """
    known = _shipped()
    family = [full for full in known if full == name or full.startswith(f"{name}-")]
    if not name or not family:
        raise ConfigError(f"{name!r} is not a GPU of {FILE.name}; known: {', '.join(known)}")
    best = max(family, key=lambda full: (known[full].memory_gb, known[full].bandwidth_gb_s))
    return best, known[best]


def gpu_names() -> list[str]:
    """Return the short names of all known GPUs."""
    return list(_shipped())
