"""Hugging Face Trainer: dicts printed to the console, and `trainer_state.json`."""

import ast
import json
import math
import re
from pathlib import Path
from typing import Any

from analysis.read.names import column_of
from analysis.read.text.batch import Format
from analysis.read.text.chunks import open_bytes
from analysis.read.text.shapes import number
from configs.errors import Unreadable

_DICT = re.compile(rb"\{'[^{}\r\n]{1,4000}\}")
# What nearly every such dict is: names, and numbers that may be quoted.
_PAIR = rb"'([^'{}\\]+)': '?([-+.\w]+)'?"
_PAIRS = re.compile(_PAIR)
_PLAIN = re.compile(rb"\{" + _PAIR + rb"(?:, " + _PAIR + rb")*\}")
_NOT_FINITE = re.compile(rb"(?<=: )(nan|-?inf)(?=[,}])")
LARGEST_STATE = 1 << 28


def _read(text: bytes) -> list[tuple[int, dict[str, float]]]:
    found = ((match.start(), _values(match[0])) for match in _DICT.finditer(text))
    return [
        (place, {column_of(name): value for name, value in values.items()})
        for place, values in found
        if values
    ]


def _values(text: bytes) -> dict[str, float]:
    """The numbers of one printed dict; empty where it is none of the Trainer's."""
    if b"loss'" not in text and b"train_runtime'" not in text:
        return {}
    if _PLAIN.fullmatch(text):
        told = {name.decode("utf-8", "replace"): number(n) for name, n in _PAIRS.findall(text)}
        return _row({name: value for name, value in told.items() if not math.isnan(value)})
    try:
        parsed = ast.literal_eval(_NOT_FINITE.sub(rb"'\1'", text).decode("utf-8", "replace"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return _row(as_numbers(parsed)) if isinstance(parsed, dict) else {}


def _row(values: dict[str, float]) -> dict[str, float]:
    """A row without the mean loss of the whole training, which the last one has."""
    if "train_runtime" in values:
        values.pop("train_loss", None)
    return values


def as_numbers(values: dict[Any, Any]) -> dict[str, float]:
    """The entries that are numbers, or numbers in quotes."""
    found = {}
    for name, value in values.items():
        if isinstance(name, str) and type(value) in (int, float, str):
            told = number(str(value).encode())
            if not math.isnan(told):
                found[name] = told
    return found


def read_state(path: Path) -> list[dict[str, float]]:
    """The rows of a `trainer_state.json`: numbers by name, `step` among them."""
    with open_bytes(path) as file:
        text = file.read(LARGEST_STATE + 1)
    if len(text) > LARGEST_STATE:
        raise Unreadable(f"{path}: larger than a trainer_state.json can be")
    try:
        history = json.loads(text)["log_history"]
        rows = [_row(as_numbers(row)) for row in history if isinstance(row, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreadable(f"{path}: looks like a trainer_state.json but is damaged") from None
    return [row for row in rows if "step" in row]


# The console names no step: losses are counted, or set against a bar, later.
TRAINER = Format(name="HF Trainer", token=b"{'", read=_read)
