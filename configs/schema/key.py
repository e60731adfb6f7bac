"""Define one key of a config: its default, its unit, and what a change of it affects."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

Affects = Literal[
    "", "loss", "clock", "loss clock", "resources", "resources clock", "validation"
]  # fmt: skip
# The file that a path must name; `new` need not exist yet.
OnDisk = Literal["file", "folder", "either", "pretraining run", "fine-tuning run", "new"]
# Further facts about a key; lists of keys elsewhere are derived from them (`tagged`):
# `picture`: two images show the same picture, but for training, only if it is equal;
# `term`: the weight of a term that training adds to its loss;
# `dit`: of `model`, it configures a DiT and no other family.
Tag = Literal["picture", "term", "dit"]


class KeyGroup(BaseModel):
    """A frozen group of keys; an unknown key or a value of another type is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def key(
    default: Any,
    doc: str,
    affects: Affects = "",
    *,
    free: bool = False,
    needed: bool = False,
    unit: str | None = None,
    path: OnDisk | None = None,
    tags: str = "",
    short: str | None = None,
    replaces: str | None = None,
    **limits: Any,
) -> Any:
    """Define a field of a `KeyGroup`.

    `affects` names what a change of the key can change: the `loss`, the `clock` (speed and
    memory), the requested `resources`, or what the `validation` of one training measures; names
    and remarks affect none. A `free` key may change when a run is resumed, and a `needed` one must
    be set. `path` names the kind of file that the value must point to. `tags` are words of `Tag`.
    `short` replaces the name of the key in names of cells. `replaces` names the key of another run
    whose value this one replaces. `limits` are those of pydantic (`ge`, ...).
    """
    extra: JsonDict = {"affects": affects, "free": free, "needed": needed, "unit": unit}
    extra |= {"path": path, "tags": tags, "short": short, "replaces": replaces}
    return Field(default, description=doc, json_schema_extra=extra, **limits)
