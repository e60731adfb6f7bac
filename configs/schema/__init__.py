"""Every key of every config: type, default, unit, and what a change of it affects."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from configs.schema.data import Data
from configs.schema.key import Group, key
from configs.schema.model import Model, Objective
from configs.schema.training import Checkpoint, Layout, Log, Optimizer, Resources, Sample, Train


class Pretrain(Group):
    """Pretraining of a diffusion transformer under torchrun."""

    kind: Literal["pretrain"] = key("pretrain", "what is run")
    question: str | None = key(None, "what this run is to answer; kept with it")
    seed: int = key(0, "seed of weights, order, noise and timesteps", "loss", ge=0, lt=2**63)
    model: Model = Field(default_factory=Model)
    data: Data = Field(default_factory=Data)
    objective: Objective = Field(default_factory=Objective)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    train: Train = Field(default_factory=Train)
    layout: Layout = Field(default_factory=Layout)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    sample: Sample = Field(default_factory=Sample)
    log: Log = Field(default_factory=Log)
    resources: Resources = Field(default_factory=Resources)

    @model_validator(mode="after")
    def _parts_fit(self) -> "Pretrain":
        if self.data.size % self.model.patch:
            raise ValueError(
                f"data.size {self.data.size} is not a multiple of model.patch {self.model.patch}"
            )
        return self


KINDS: dict[str, type[Group]] = {"pretrain": Pretrain}


@dataclass(frozen=True, kw_only=True)
class KeyInfo:
    """What the schema says of one key, named with dots (`train.global_batch`)."""

    name: str
    type: str
    default: Any
    doc: str
    unit: str | None
    affects: frozenset[str]
    free: bool


def keys(kind: str) -> dict[str, KeyInfo]:
    """Every key of a kind of config, by its dotted name, in the order of the schema."""
    return {info.name: info for info in _walk(KINDS[kind], "")}


def _walk(group: type[Group], prefix: str) -> Iterator[KeyInfo]:
    for name, field in group.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Group):
            yield from _walk(inner, f"{prefix}{name}.")
        else:
            yield _info(prefix + name, field)


def _info(name: str, field: FieldInfo) -> KeyInfo:
    extra = field.json_schema_extra
    assert isinstance(extra, dict), f"{name} is not made with key()"
    annotation = field.annotation
    spelled = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    affects = extra["affects"]
    assert isinstance(affects, list)
    return KeyInfo(
        name=name,
        type=spelled.replace("typing.", "").replace("None", "null"),
        default=field.default,
        doc=field.description or "",
        unit=extra["unit"] if isinstance(extra["unit"], str) else None,
        affects=frozenset(str(tag) for tag in affects),
        free=bool(extra["free"]),
    )
