"""Every key of every config: type, default, unit, and what a change of it affects."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic.fields import FieldInfo

from configs.schema.command import Command
from configs.schema.encode import Encode
from configs.schema.finetune import Finetune
from configs.schema.gns import NoiseRun
from configs.schema.infer import Infer
from configs.schema.key import KeyGroup, Tag
from configs.schema.pretrain import Pretrain
from configs.schema.removed import REMOVED_KEYS
from configs.schema.run import Run
from configs.schema.sample import Sampling
from configs.schema.study import Study

__all__ = [
    "KINDS", "MODELS", "Command", "Encode", "Finetune", "Infer", "KeyInfo", "NoiseRun", "Pretrain",
    "Run", "Sampling", "Study", "key_info", "keys", "tagged",
]  # fmt: skip

KINDS: dict[str, type[Run]] = {
    "pretrain": Pretrain,
    "encode": Encode,
    "sample": Sampling,
    "finetune": Finetune,
    "infer": Infer,
    "gns": NoiseRun,
    "command": Command,
}
# A study is not a run: it is planned and submitted as a whole.
MODELS: dict[str, type[KeyGroup]] = {**KINDS, "study": Study}


@dataclass(frozen=True, kw_only=True)
class KeyInfo:
    """The schema of one key, under its dotted name (`train.global_batch`)."""

    name: str
    type: str
    default: Any
    doc: str
    unit: str | None
    affects: frozenset[str]
    free: bool
    needed: bool
    path: str | None
    tags: frozenset[str]
    short: str | None
    replaces: str | None


@cache
def keys(kind: str) -> dict[str, KeyInfo]:
    """Return every key of a kind of config by its dotted name, in order; do not modify it."""
    return {info.name: info for info in _walk(MODELS[kind], "")}


def key_info(kind: str, name: str) -> KeyInfo:
    """Return the schema of a dotted name; a name inside a mapping has the schema of the mapping."""
    known = keys(kind)
    while name not in known:
        name = name.rpartition(".")[0]
    return known[name]


def tagged(kind: str, tag: Tag) -> tuple[str, ...]:
    """Return the keys of a kind of config with a tag, removed ones included, in order."""
    removed = (name for name, key in REMOVED_KEYS.items() if key.tag == tag)
    return (*(info.name for info in keys(kind).values() if tag in info.tags), *removed)


def _walk(group: type[KeyGroup], prefix: str) -> Iterator[KeyInfo]:
    for name, field in group.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, KeyGroup):
            yield from _walk(inner, f"{prefix}{name}.")
        else:
            yield _info(prefix + name, field)


def _info(name: str, field: FieldInfo) -> KeyInfo:
    extra = field.json_schema_extra
    assert isinstance(extra, dict), f"{name} is not made with key()"
    annotation = field.annotation
    spelled = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    words = {name: frozenset(str(extra[name]).split()) for name in ("affects", "tags")}
    return KeyInfo(
        name=name,
        type=spelled.replace("typing.", "").replace("None", "null"),
        default=field.default,
        doc=field.description or "",
        **{**extra, **words},  # type: ignore[arg-type]
    )
