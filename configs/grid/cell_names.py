"""Names of a study's cells: short, the same whatever else the study holds, safe as folder names."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_PART, LONGEST = 24, 80
# The words of published studies; other keys go by their last word.
_SHORT = {
    "activation_checkpointing.mode": "ac",
    "layout.replicate": "p",
    "layout.shard": "shard",
    "model.patch": "ps",
    "optimizer.lr": "lr",
    "resources.gpu": "",
    "resources.gpus_per_node": "g",
    "resources.nodes": "n",
    "train.compile": "c",
    "train.global_batch": "bs",
    "train.micro_batch": "mb",
    "train.precision": "d",
    "seed": "s",
}


def cell_names(cells: Sequence[Mapping[str, Any]], *, labelled: frozenset[str]) -> list[str]:
    """A name per cell from its levels by axis; `labelled` axes give their labels alone.

    A name is of letters, digits and `. _ -`, starts with a letter or a digit, and differs from
    the others also where upper and lower case are one.
    """
    names = [_name(levels, labelled) for levels in cells]
    counts = Counter(name.casefold() for name in names)
    return [
        f"{name[: LONGEST - 7]}-{_digest(levels)}" if counts[name.casefold()] > 1 else name
        for name, levels in zip(names, cells, strict=True)
    ]


def repeat_name(name: str, repeat: int) -> str:
    """The name of a cell's run; the first has the cell's own, so that repeats may be added."""
    return name if repeat == 1 else f"{name}_r{repeat}"


def _name(levels: Mapping[str, Any], labelled: frozenset[str]) -> str:
    parts = [_part(axis, level, is_label=axis in labelled) for axis, level in levels.items()]
    name = "_".join(parts) or "base"
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 7]}-{_digest(levels)}"


def _part(axis: str, level: Any, *, is_label: bool) -> str:
    text, leaf = _text(level), axis.rpartition(".")[2]
    # The end of a path tells more than its beginning.
    told = text.rpartition("/")[2] if text.startswith("/") else text
    value = re.sub(r"[^A-Za-z0-9.]+", "-", told).strip("-.")
    lossy = not value or value != text.replace("_", "-") or len(value) > LONGEST_PART
    value = value[-LONGEST_PART:].strip("-.") if told != text else value[:LONGEST_PART].rstrip("-.")
    if lossy:
        value = f"{value}-{_digest(level)}" if value else _digest(level)
    if is_label:
        return value
    if axis in _SHORT:
        return _SHORT[axis] + value
    leaf = re.sub(r"[^A-Za-z0-9]+", "-", leaf).strip("-") or "x"
    return f"{leaf}-{value}"


def _text(level: Any) -> str:
    return level if isinstance(level, str) else json.dumps(level, ensure_ascii=True)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:6]
