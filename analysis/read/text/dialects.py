"""The meaning of a value of a line, by its name and unit, and by the trainer that prints it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.read.text.fields import Field
from analysis.read.vocabulary import key_of, meaning, tells_unit


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """A trainer with a clock or names of its own, whose lines are known by a `mark`.

    `names` gives columns by the words of a name, and by the unit after a colon for a value without
    a name.
    """

    name: str
    mark: re.Pattern[str]
    names: dict[str, str]


DIALECTS = tuple(
    Dialect(name=name, mark=re.compile(mark), names=names)
    for name, mark, names in (
        ("DiT", r"\(step=\d+\) Train Loss", {}),
        ("Megatron", r"\biteration +\d+/ *\d+ \|", {}),
        ("torchtitan", r"\bstep: *\d+ +loss: ", {"memory": "gpu_gib"}),
        ("nanoGPT", r"\biter \d+: loss \S+ time|\bstep \d+: train loss \S+ val loss",
         {"time": "step_s"}),
        ("speedrun", r"\btrain_time:", {"train time": "train_s"}),
        ("llm.c", r"^s:\d+ t(?:r|e)l:", {"s": "step", "trl": "loss", "tel": "val_loss"}),
        ("llm.c console", r"\bstep +\d+/\d+ \| (?:train )?loss", {":ms": "step_s"}),
        ("MaxText", r"completed step: ", {"seconds": "step_s"}),
        ("detectron2", r"\biter: \d+ .*total_loss: ", {"time": "step_s"}),
        ("BasicSR", r"\[epoch: *\d+, iter:", {"l pix": "loss"}),
        ("mmengine",
         r"Epoch(?:\(train\))? *\[\d+\]\[ *\d+/\d+\]|\bIter(?:\(train\))? *\[ *\d+/\d+\]",
         {"time": "step_s"}),
        ("timm", r"Train: \d+ \[ *\d+/\d+",
         {"train": "epoch", "time": "step_s", ":/s": "images_per_s"}),
        ("DeepSpeed", r"RunningAvgSamplesPerSec=",
         {"curr samples per sec": "images_per_s", "running avg samples per sec": "running"}),
    )
)  # fmt: skip
_OF_FORM = {
    "stamp": "time", "rank": "rank", "bar step": "step", "bar of": "of", "bar clock": "bar_s",
}  # fmt: skip


def dialect_of(lines: Sequence[str]) -> Dialect | None:
    """Return the dialect of some lines of a kind, None if they are not of a known trainer."""
    return next((one for one in DIALECTS if any(map(one.mark.search, lines))), None)


def meaning_of(one: Field, dialect: Dialect | None) -> tuple[str, float]:
    """Return the column and the factor of a field; "" for what is no number of the training."""
    if one.form in _OF_FORM:
        return _OF_FORM[one.form], 1.0
    told = _told(one, dialect)
    if told is not None:
        return told, meaning("", one.unit)[1] if told.endswith("_s") else 1.0
    if one.form == "clock":
        column = meaning(one.name)[0]
        is_clock = not one.name or column in ("duration_s", "elapsed_s", "epoch_s", "step_s")
        return (column if one.name and is_clock else "day_s" if is_clock else ""), 1.0
    if not one.name and not re.search(r"/|^ ?m?s", one.unit):
        return "", 1.0
    column, factor = meaning(one.name, one.unit)
    return column or key_of(one.name).replace(" ", "_"), factor


def _told(one: Field, dialect: Dialect | None) -> str | None:
    return dialect.names.get(key_of(one.name) or f":{one.unit.strip()}") if dialect else None


def has_unit(one: Field, dialect: Dialect | None) -> bool:
    """Whether a time names its unit, or its trainer is known."""
    return one.form == "clock" or bool(_told(one, dialect)) or tells_unit(one.name, one.unit)
