"""The settings that a text prints above its records: options, dumps of a config, `name: value`."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.read.batch import counts_parts
from analysis.read.text.fields import HEAD, LONGEST_LINE, RANKS
from analysis.read.text.pieces import Piece
from analysis.read.text.values import number
from analysis.read.vocabulary import is_evaluation, is_loss, key_of, meaning

# Lines one below another hold settings if they have so many pairs of a name and a value.
FEWEST_PAIRS = 3
# Signs above the records of a run beyond which no settings are looked for.
MOST_SIGNS = 1 << 18
_NAME = r"[A-Za-z_][\w./-]{0,60}"
_SCALAR = (
    r"(?:'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|\[[^\[\]{}\n]{0,200}\]|\([^(){}\n]{0,200}\)|\{\}"
    r"|(?:[^\s,;:=\[\](){}|'\"]|:(?=[\w/\\])){1,200})"
)
# `Namespace(lr=0.1, name='a', data={'size': 3})`, and what opens or closes a group.
_PAIR = re.compile(
    rf"(?<![\w.'\"-])(?P<quote>['\"]?)(?P<name>{_NAME})(?P=quote) ?[:=] ?"
    rf"(?:(?P<value>{_SCALAR})(?=[\s,;)}}\]|]|$)|(?P<group>\{{)|(?:[A-Za-z_][\w.]{{0,60}})?[(\[])"
    r"|[{(\[]|(?P<close>[)}\]])"
)
# A pair that is a line, or the name of a group of them, behind what a logger puts there.
_LINE = re.compile(
    r"(?:^|[\]|>*:-] |INFO:\w{0,40}:| INFO )(?P<indent>\s*)(?P<quote>['\"]?)"
    r"(?P<name>[A-Za-z_][\w./-]{0,60}(?: [\w(&][\w./)-]{0,30}){0,9})(?P=quote)\s{0,40}[:=]\s{0,40}"
    rf"(?:(?P<value>{_SCALAR})(?: \([^()]{{0,80}}\)|[,;])?|(?P<group>\{{)?)\s*$"
)
_OPTION = re.compile(r"(?<!\S)--(?P<name>[A-Za-z][\w.-]{0,60})(?:[= ](?P<value>(?!-\D)[^\s\\]+))?")
_COMMAND = re.compile(r"^\s*--\w|\.py\b|(?i:\b(?:command|arguments|args)\b)")
# A text that prints its own source, and a module of PyTorch.
_CODE = re.compile(r"^\s*(?:import \w|from \w\S* import |def \w+\(|class \w+.*:)")
_MODULE = re.compile(r"^\s*\(\w+\): ")
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}
# What stands for no part, and for one device.
_NONE = frozenset(["", "-1", "False", "None"])
_ONE = _NONE | {"0", "1", "[0]", "cuda", "cpu", "cuda:0"}
_SEVERAL = re.compile(r"(?i)\b(?:[2-9]|\d\d+) ?(?:x ?)?gpus?\b|world.?size\W{1,4}(?:[2-9]|\d\d)")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings above a run, by dotted name, and the batch of a step.

    `batch` is None if none is printed, or several. `is_whole` says that its name is one of all
    devices, `is_part` that others may add to it.
    """

    values: Mapping[str, Any]
    batch: int | None
    is_whole: bool
    is_part: bool


def settings_above(pieces: Iterable[Piece], spans: Sequence[tuple[int, int]]) -> Iterator[Settings]:
    """Yield the settings of each run, whose first and last lines are `spans`, in order.

    They are those above its first line, and of those of the runs before it what is not named again.
    A name with two values above one run has none.
    """
    known: dict[str, set[Any]] = {}
    is_of_many = False
    for lines in _above(pieces, spans):
        found: dict[str, set[Any]] = {}
        for name, value in _pairs(lines):
            found.setdefault(name, set()).add(value)
        known = known | found
        is_of_many |= any(map(_names_several, lines))
        parts = (
            {*map(str, values)} - (_NONE if key_of(name).endswith("rank") else _ONE)
            for name, values in known.items()
            if counts_parts(name)
        )
        whole, own = _batches(known, "global_batch"), _batches(known, "batch", "batch_number")
        batch = whole or own
        yield Settings(
            values={name: one for name, (one, *others) in known.items() if not others},
            batch=next(iter(batch)) if len(batch) == 1 else None,
            is_whole=bool(whole),
            is_part=is_of_many or any(parts),
        )


def _names_several(line: str) -> bool:
    """Whether a line names several devices, or is of another rank than the first."""
    ranks = (rank["rank"] for known in RANKS if (rank := known.search(line[:HEAD])))
    return any(map(int, ranks)) or _SEVERAL.search(line) is not None


def _batches(known: Mapping[str, set[Any]], *columns: str) -> set[int]:
    """Return the batch sizes that settings name as one of some columns."""
    return {
        value
        for name, values in known.items()
        if not is_evaluation(name) and _column(name.rpartition(".")[2]) in columns
        for value in values
        if type(value) is int and value > 0
    }


def _column(name: str) -> str:
    return "batch" if key_of(name) == "bs" else meaning(name)[0]


def _above(pieces: Iterable[Piece], spans: Sequence[tuple[int, int]]) -> Iterator[list[str]]:
    """Yield the lines above each run, without those of the run before it."""
    lines: list[str] = []
    run, after, signs = 0, 0, 0
    for piece in pieces:
        texts = piece.text.split("\n")
        places = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
        for text, line in zip(texts, piece.lines_at(places).tolist(), strict=True):
            while line >= spans[run][0]:
                yield lines
                lines, after, signs, run = [], spans[run][1], 0, run + 1
                if run == len(spans):
                    return
            signs += len(text)
            if line > after and signs < MOST_SIGNS:
                lines.append(text[:LONGEST_LINE])


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the names and the values of settings in lines."""
    if any(map(_CODE.match, lines)):
        return
    # The indentation and the name of each group that the line is in.
    groups: list[tuple[int, str]] = []
    block: list[tuple[str, Any]] = []
    for line in lines:
        found = []
        if _COMMAND.search(line):
            options = _OPTION.finditer(line)
            found = [
                (one["name"].replace("-", "_"), _value(one["value"] or "true")) for one in options
            ]
        pair = None if found else _LINE.search(line)
        if pair:
            groups = [group for group in groups if group[0] < len(pair["indent"])]
            if pair["value"] is None:
                groups.append((len(pair["indent"]), _group(pair)))
                continue
            found = [_named([name for _, name in groups], pair)]
        elif not found and not _MODULE.match(line):
            found = list(_in_line(line))
            found = found if len(found) >= FEWEST_PAIRS else []
        if not found and re.search(r"\w", line):
            yield from _kept(block)
            block = []
        block += found
    yield from _kept(block)


def _in_line(line: str) -> Iterator[tuple[str, Any]]:
    groups: list[str] = []
    for pair in _PAIR.finditer(line):
        if pair["value"] is not None:
            yield _named(groups, pair)
        elif pair["close"]:
            groups = groups[:-1]
        else:
            groups = [*groups, _group(pair)]


def _group(pair: re.Match[str]) -> str:
    """Return the name of a group of settings, "" for one that is only a heading or a type."""
    name = pair["name"] or ""
    return (
        name if (pair["group"] and pair["quote"]) or name.islower() or is_evaluation(name) else ""
    )


def _named(groups: Sequence[str], pair: re.Match[str]) -> tuple[str, Any]:
    """Return the name of a setting, behind those of its groups, and its value as YAML has it."""
    name, text = ".".join(filter(None, [*groups, pair["name"]])), pair["value"]
    return name, _value(text)


def _kept(block: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the settings of lines one below another if they are enough, without results."""
    if len(block) >= FEWEST_PAIRS:
        for name, value in block:
            if not (type(value) is float and (is_loss(name) or is_evaluation(name))):
                yield name, value


def _value(text: str) -> Any:
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if text[0] in "'\"":
        return text[1:-1]
    printed = number(text)
    if math.isnan(printed):
        return text
    return int(text) if text.lstrip("+-").isdecimal() else printed
