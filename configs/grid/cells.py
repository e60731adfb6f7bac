"""Resolve a study to its cells: every combination of levels, each validated like any config."""

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from configs.errors import ConfigError
from configs.load import Tree, flatten, merge, resolve
from configs.paths import with_absolute_paths
from configs.schema import KINDS, Pretrain, Run, Study, keys
from configs.schema.study import FEWEST_ROUNDS

MOST_CELLS = 10_000
_LONGEST_PART, LONGEST_NAME = 32, 80
# The least records of a turn of an interleaved study: the warm-up of each is found and cut.
_TURN_RECORDS = 20


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point of a grid: its level on each axis (a value, or a label) and its config."""

    name: str
    levels: dict[str, Any]
    config: Run


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a grid: for each level, a value or a label, the dotted keys that it sets."""

    name: str
    labelled: bool
    levels: list[tuple[Any, Tree]]


def make_cells(study: Study, base: Tree, *, source: str) -> list[Cell]:
    """Return a study's cells over `base`; a `ConfigError` names `source`, cell and key."""
    axes = [_axis(name, levels) for name, levels in study.axes.items()]
    _check_keys(study, axes, source=source)
    combinations = list(_combinations(axes, source=source))
    labelled = frozenset(axis.name for axis in axes if axis.labelled)
    names = cell_names([levels for levels, _ in combinations], labelled=labelled)
    question = {} if study.question is None else {"question": study.question}
    common = merge(base, flatten(study.set) | question)
    cells = []
    for name, (levels, changes) in zip(names, combinations, strict=True):
        tree = merge(common, changes)
        config = with_absolute_paths(resolve(tree, source=f"{source}, cell {name}"))
        cells.append(Cell(name=name, levels=levels, config=config))
    _check_distinct(cells, source=source)
    if study.interleave is not None:
        _check_turns(cells, study.interleave, source=source)
    return cells


def _check_turns(cells: Sequence[Cell], turn: int, *, source: str) -> None:
    """Raise `ConfigError` unless the cells can take turns of `turn` steps in one allocation."""
    for cell in cells:
        config, place = cell.config, f"{source}, cell {cell.name}: interleave {turn}"
        if not isinstance(config, Pretrain):
            raise ConfigError(f"{place}: only pretrain runs take turns; remove interleave")
        if config.resources != cells[0].config.resources:
            raise ConfigError(
                f"{place}: runs take turns in one allocation, so all need the same resources; "
                "remove the axis over them, or interleave"
            )
        steps, every = config.train.steps, config.log.every
        if turn % every or turn < _TURN_RECORDS * every:
            raise ConfigError(
                f"{place}: a turn needs {_TURN_RECORDS} records or more, the last at its end; set "
                f"a multiple of log.every {every}, at least {_TURN_RECORDS * every}"
            )
        if steps % turn or steps < FEWEST_ROUNDS * turn:
            raise ConfigError(
                f"{place}: train.steps {steps} is not a whole number of turns, at least "
                f"{FEWEST_ROUNDS}; set it to {max(FEWEST_ROUNDS, -(-steps // turn)) * turn}"
            )


def _axis(name: str, levels: Any) -> Axis:
    if isinstance(levels, dict):
        named = [(label, flatten(changes)) for label, changes in levels.items()]
        return Axis(name=name, labelled=True, levels=named)
    return Axis(name=name, labelled=False, levels=[(value, {name: value}) for value in levels])


def _combinations(axes: list[Axis], *, source: str) -> Iterator[tuple[dict[str, Any], Tree]]:
    count = math.prod(len(axis.levels) for axis in axes)
    if count > MOST_CELLS:
        raise ConfigError(
            f"{source}: its axes make {count} cells, more than {MOST_CELLS}; split the study"
        )
    for chosen in itertools.product(*(axis.levels for axis in axes)):
        levels = {axis.name: level for axis, (level, _) in zip(axes, chosen, strict=True)}
        yield levels, {name: value for _, changes in chosen for name, value in changes.items()}


def _check_keys(study: Study, axes: list[Axis], *, source: str) -> None:
    """Raise `ConfigError` for a key that is set twice, or that belongs to the study."""
    setters: dict[str, str] = dict.fromkeys(flatten(study.set), "set")
    for axis in axes:
        for name in dict.fromkeys(name for _, changes in axis.levels for name in changes):
            if name in setters:
                raise ConfigError(
                    f"{source}: {name} is set by axis {axis.name} and by {setters[name]}; "
                    "let one of them set it"
                )
            setters[name] = f"axis {axis.name}"
    for name in ("kind", "question"):
        if name in setters:
            raise ConfigError(
                f"{source}: {name} must be the same for all cells; remove it from {setters[name]}"
            )


def _check_distinct(cells: list[Cell], *, source: str) -> None:
    """Raise `ConfigError` if two cells are the same."""
    seen: dict[str, str] = {}
    for cell in cells:
        text = repr(cell.config)
        if text in seen:
            raise ConfigError(
                f"{source}: cells {seen[text]} and {cell.name} have the same config; remove one "
                "of their levels (to run a cell several times, set repeats)"
            )
        seen[text] = cell.name


def cell_names(cells: Sequence[Mapping[str, Any]], *, labelled: frozenset[str]) -> list[str]:
    """Return a name per cell from its levels by axis; `labelled` axes give their label alone.

    A name does not depend on the rest of the study unless two are equal. It consists of letters,
    digits and `. _ -`, starts with a letter or a digit, and is unique also without case.
    """
    names = [_name(levels, labelled) for levels in cells]
    counts = Counter(name.casefold() for name in names)
    return [
        _with_digest(name, levels) if counts[name.casefold()] > 1 else name
        for name, levels in zip(names, cells, strict=True)
    ]


def repeat_name(name: str, repeat: int) -> str:
    """Return the name of a run; the first has its cell's name, so that repeats can be added."""
    return name if repeat == 1 else f"{name}_r{repeat}"


def _name(levels: Mapping[str, Any], labelled: frozenset[str]) -> str:
    parts = [_part(axis, level, is_label=axis in labelled) for axis, level in levels.items()]
    name = "_".join(parts) or "base"
    return name if len(name) <= LONGEST_NAME else _with_digest(name, levels)


def _with_digest(name: str, levels: Mapping[str, Any]) -> str:
    return f"{_whole_words(name, LONGEST_NAME - 7)}-{_digest(levels)}"


def _whole_words(text: str, most: int) -> str:
    """Return the first words of at most `most` characters, or a part of the first word."""
    words = re.match(rf".{{1,{most}}}(?=[-_]|$)", text)
    return words[0] if words else text[:most]


def _part(axis: str, level: Any, *, is_label: bool) -> str:
    text = level if isinstance(level, str) else json.dumps(level, ensure_ascii=True)
    # The last name of a path says more than the others.
    shown = text.rpartition("/")[2] if text.startswith("/") else text
    value = re.sub(r"[^A-Za-z0-9.]+", "-", shown).strip("-.")
    lossy = not value or value != text.replace("_", "-") or len(value) > _LONGEST_PART
    value = _whole_words(value, _LONGEST_PART).rstrip("-.")
    if lossy:
        value = f"{value}-{_digest(level)}" if value else _digest(level)
    if is_label:
        return value
    if (short := _short(axis)) is not None:
        return short + value
    leaf = re.sub(r"[^A-Za-z0-9]+", "-", axis.rpartition(".")[2]).strip("-") or "x"
    return f"{leaf}-{value}"


@cache
def _short(axis: str) -> str | None:
    """Return the abbreviation of a key, the same in every kind of run; None if it has none."""
    infos = (keys(kind).get(axis) for kind in KINDS)
    return next((info.short for info in infos if info and info.short is not None), None)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:6]
