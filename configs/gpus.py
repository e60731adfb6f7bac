"""What each GPU can do at best (`configs/gpus.yaml`), by the model that its driver reports."""

import re
from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from configs.errors import ConfigError
from configs.load import read_tree
from configs.schema.key import KeyGroup

FILE = Path(__file__).with_name("gpus.yaml")


class Peaks(KeyGroup):
    """Dense peak rates in TFLOP/s by the type that is computed in; without sparsity."""

    bf16: float = Field(gt=0)
    fp16: float = Field(gt=0)
    tf32: float = Field(gt=0)
    fp32: float = Field(gt=0)


class Gpu(KeyGroup):
    """One type of GPU; memory in GB, bandwidth in GB/s."""

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
                raise ValueError(f"{name!r} is no regular expression ({error})") from None
        return names


def load_gpus(path: Path = FILE) -> dict[str, Gpu]:
    """Every type of GPU by its short name; `ConfigError` where the file is not as it should be."""
    found = {}
    for name, tree in read_tree(path).items():
        try:
            found[name] = Gpu.model_validate(tree)
        except ValidationError as error:
            said = (
                f"{path}: {'.'.join([name, *map(str, item['loc'])])}: {item['msg']}"
                for item in error.errors()
            )
            raise ConfigError("\n".join(said)) from None
    return found


@cache
def _shipped() -> dict[str, Gpu]:
    return load_gpus()


def find_gpu(model: str) -> Gpu | None:
    """The GPU whose driver reports this model name; None for one that is not known."""
    matching = (
        gpu for gpu in _shipped().values() if any(re.fullmatch(name, model) for name in gpu.names)
    )
    return next(matching, None)


def named_gpu(name: str) -> tuple[str, Gpu]:
    """The GPU that a person calls `name`, and its full short name.

    `a100` stands for the largest and fastest of a100-40gb, a100-80gb-sxm and a100-80gb-pcie.
    `ConfigError` names the GPUs that are known.
    """
    known = _shipped()
    family = [full for full in known if full == name or full.startswith(f"{name}-")]
    if not name or not family:
        raise ConfigError(f"{name!r} is no GPU of {FILE.name}; known: {', '.join(known)}")
    best = max(family, key=lambda full: (known[full].memory_gb, known[full].bandwidth_gb_s))
    return best, known[best]


def gpu_names() -> list[str]:
    """The short names of all GPUs that are known."""
    return list(_shipped())
