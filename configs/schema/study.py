"""A study: one question, a base config, and the grid of runs that answers it. It is no run."""

import re
from typing import Any, Literal

from pydantic import model_validator

from configs.schema.key import KeyGroup, key

# What stands in the first columns of cells.tsv cannot be an axis too.
COLUMNS = ("index", "order", "cell", "repeat", "shape", "digest")
_AXIS = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_MOST_REPEATS = 1000


class Study(KeyGroup):
    """A grid of runs over a base config."""

    kind: Literal["study"] = key("study", "what this file is")
    question: str | None = key(None, "what the study is to answer; kept with every cell")
    base: str | None = key(None, "config of the cells, relative to the study's file")
    set: dict[str, Any] = key({}, "keys that differ from the base in every cell")
    axes: dict[str, Any] = key(
        {}, "what varies: key: [values], or name: {label: {key: value, ...}, ...}"
    )
    leave_out: list[dict[str, Any]] = key(
        [], "cells that are no part of it: mappings of axis or key to a value, or to some"
    )
    repeats: int = key(
        1, "runs of each cell, alike to the seed (repeats by seed: make seed an axis)", ge=1,
        le=_MOST_REPEATS,
    )  # fmt: skip
    order_seed: int = key(0, "seed of the order in which cells are run", ge=0)
    throttle: int | None = key(None, "cells of an array that may run at once; null: no limit", ge=1)
    report: bool = key(True, "queue a job that writes report.html when all cells have ended")

    @model_validator(mode="after")
    def _parts_fit(self) -> "Study":
        if self.base is None:
            raise ValueError("base must name a config, such as ../pretrain/digits.yaml")
        for name, levels in self.axes.items():
            refusal = _refusal(name, levels)
            if refusal:
                raise ValueError(f"axes: {refusal}")
        if any(not condition for condition in self.leave_out):
            raise ValueError("leave_out: {} would leave out every cell; name what it shall match")
        return self


def _refusal(name: str, levels: Any) -> str | None:
    """What is wrong with an axis."""
    if not _AXIS.fullmatch(name):
        return f"{name!r} is no name of a key or an axis: letters, digits, and . _ - after a letter"
    if name in COLUMNS:
        return f"{name} is a column of cells.tsv already; name the axis otherwise"
    if not isinstance(levels, (list, dict)) or not levels:
        return f"{name}: expected [values], or {{label: {{key: value}}}}, and not none of them"
    if isinstance(levels, list):
        if any(isinstance(level, dict) for level in levels):
            return f"{name}: several keys at once need a label: {name}: {{label: {{key: value}}}}"
        return None
    odd = [label for label, changes in levels.items() if not isinstance(changes, dict)]
    if odd:
        return f"{name}: {odd[0]!r} is a label, and needs the keys that it sets: {{key: value}}"
    return None
