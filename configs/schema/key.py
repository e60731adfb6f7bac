"""One key of a config: its default, its unit, and what a change of it affects."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

Affects = Literal["loss", "clock", "resources"]


class Group(BaseModel):
    """A frozen group of keys; an unknown key or a value of another type is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def key(
    default: Any,
    doc: str,
    *affects: Affects,
    free: bool = False,
    unit: str | None = None,
    **limits: Any,
) -> Any:
    """A field of a `Group`.

    `affects` names what a change of the key can change: the `loss`, the `clock` (speed and
    memory) or the `resources` asked for; none of them for names and remarks. A `free` key may
    change when a run is resumed. `limits` are pydantic's (`ge`, `le`, `gt`, ...).
    """
    extra: JsonDict = {"affects": [*affects], "free": free, "unit": unit}
    return Field(default, description=doc, json_schema_extra=extra, **limits)
