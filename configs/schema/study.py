"""A study: one question, a base config, and the grid of runs that answers it."""

import re
from typing import Any, Literal

from pydantic import model_validator

from configs.schema.key import KeyGroup, key

# The first columns of cells.tsv; they cannot be names of axes.
COLUMNS = ("index", "order", "cell", "repeat", "shape", "digest")
# With the dashes of a flag, if the base is a batch script.
_AXIS = re.compile(r"[-+]{0,2}[A-Za-z_][A-Za-z0-9_./-]*")
_MOST_REPEATS = 1000
# The scatter of fewer repeats says too little to stop at.
FEWEST_REPEATS = 3
# Fewer rounds of an interleaved study are not paired: their interval would be wider than any gain.
FEWEST_ROUNDS = 3


class Study(KeyGroup):
    """A grid of runs over a base config."""

    kind: Literal["study"] = key("study", "kind of this file")
    question: str | None = key(None, "question that the study answers; stored with every cell")
    base: str | None = key(
        None,
        "base config of all cells, or a batch script; path relative to this file",
        needed=True,
    )
    set: dict[str, Any] = key({}, "keys that every cell changes from the base")
    axes: dict[str, Any] = key(
        {}, "the grid: key: [values], or name: {label: {key: value, ...}, ...}"
    )
    repeats: int = key(
        1, "runs of each cell, all with one seed (for more seeds make seed an axis)", ge=1,
        le=_MOST_REPEATS,
    )  # fmt: skip
    throttle: int | None = key(None, "most runs that go on at once; null: no limit", ge=1)
    stop: Literal["decided"] | None = key(
        None,
        "decided: skip the repeats (over seeds, too) of a cell whose speed and loss against the "
        "first cell are settled; null: run all",
    )
    margin: float = key(
        0.02, "largest difference at which `stop: decided` calls two cells equivalent", gt=0, lt=1
    )
    interleave: int | None = key(
        None,
        "with --local the runs take turns of so many steps, in shuffled rounds; null: whole runs",
        unit="steps",
        ge=1,
    )
    report: bool = key(True, "queue a job that writes report.html after all cells have ended")

    @model_validator(mode="after")
    def _parts_fit(self) -> "Study":
        for name, levels in self.axes.items():
            refusal = _refusal(name, levels)
            if refusal:
                raise ValueError(f"axes: {refusal}")
        repeats = self.repeats * len(self.axes.get("seed", [None]))
        if self.stop and repeats < FEWEST_REPEATS:
            raise ValueError(
                f"stop: decided needs at least {FEWEST_REPEATS} repeats of a cell, by `repeats` or "
                f"an axis `seed`; it has {repeats}"
            )
        if self.stop and self.interleave:
            raise ValueError(
                "stop: decided skips runs that wait, and with interleave all begin in the first "
                "round; remove one of the two"
            )
        return self


def _refusal(name: str, levels: Any) -> str | None:
    """Return the error in an axis, or None."""
    if not _AXIS.fullmatch(name):
        return f"{name!r} is not a name of a key or an axis: a letter, then letters, digits, . _ -"
    if name in COLUMNS:
        return f"{name} is already a column of cells.tsv; choose another name"
    if not isinstance(levels, (list, dict)) or not levels:
        return f"{name}: expected [values], or {{label: {{key: value}}}}, with at least one entry"
    if isinstance(levels, list):
        if any(isinstance(level, dict) for level in levels):
            return f"{name}: several keys at once need a label: {name}: {{label: {{key: value}}}}"
        return None
    odd = [label for label, changes in levels.items() if not isinstance(changes, dict)]
    if odd:
        return f"{name}: {odd[0]!r} is a label and needs the keys that it sets: {{key: value}}"
    return None
