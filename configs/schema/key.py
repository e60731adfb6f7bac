"""Define one key of a config: its default, its unit, and what a change of it affects."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

Affects = Literal["", "loss", "clock", "loss clock", "resources", "resources clock"]
# The file that a path must name; `new` need not exist yet.
OnDisk = Literal["file", "folder", "either", "pretraining run", "fine-tuning run", "new"]


class KeyGroup(BaseModel):
    """A frozen group of keys; an unknown key or a value of another type is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def key(
    default: Any,
    doc: str,
    affects: Affects = "",
    *,
    free: bool = False,
    unit: str | None = None,
    path: OnDisk | None = None,
    **limits: Any,
) -> Any:
    """Define a field of a `KeyGroup`.

    `affects` names what a change of the key can change: the `loss`, the `clock` (speed and
    memory) or the requested `resources`; names and remarks affect none. A `free` key may change
    when a run is resumed. `path` names the kind of file that the value must point to. `limits`
    are those of pydantic (`ge`, `le`, `gt`, ...).
    """
    extra: JsonDict = {"affects": affects, "free": free, "unit": unit, "path": path}
    return Field(default, description=doc, json_schema_extra=extra, **limits)
