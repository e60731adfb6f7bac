"""From a study to its cells: every combination of levels, resolved as strictly as any config."""

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from configs.checks.paths import with_absolute_paths
from configs.errors import ConfigError
from configs.grid.cell_names import cell_names
from configs.load import Tree, flatten, merge, resolve, to_tree
from configs.schema import Run, Study

MOST_CELLS = 10_000


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point of a grid: its level on each axis (a value, or a label), and its config.

    `changes` are the dotted keys in which it differs from the base.
    """

    name: str
    levels: dict[str, Any]
    changes: Tree
    config: Run


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What varies together: for each level, a value or label, the dotted keys that it sets."""

    name: str
    labelled: bool
    levels: list[tuple[Any, Tree]]


def axes_of(study: Study) -> list[Axis]:
    """The axes of a study, in its order."""
    return [_axis(name, levels) for name, levels in study.axes.items()]


def _axis(name: str, levels: Any) -> Axis:
    if isinstance(levels, dict):
        named = [(label, flatten(changes)) for label, changes in levels.items()]
        return Axis(name=name, labelled=True, levels=named)
    return Axis(name=name, labelled=False, levels=[(value, {name: value}) for value in levels])


def make_cells(study: Study, base: Tree, *, source: str) -> list[Cell]:
    """The cells of a study over the config `base`; `ConfigError` names `source`, cell and key."""
    axes = axes_of(study)
    _check_keys(study, axes, source=source)
    combinations = list(_combinations(axes, source=source))
    labelled = frozenset(axis.name for axis in axes if axis.labelled)
    names = cell_names([levels for levels, _ in combinations], labelled=labelled)
    asked = {} if study.question is None else {"question": study.question}
    fixed = flatten(study.set) | asked
    ground = merge(base, fixed)
    cells = []
    for name, (levels, changes) in zip(names, combinations, strict=True):
        if _left_out_by_level(study, levels):
            continue
        tree = merge(ground, changes)
        config = with_absolute_paths(resolve(tree, source=f"{source}, cell {name}"))
        cells.append(Cell(name=name, levels=levels, changes=fixed | changes, config=config))
    return _checked(_without_left_out(study, cells, axes, source=source), source=source)


def _combinations(axes: list[Axis], *, source: str) -> Iterator[tuple[dict[str, Any], Tree]]:
    count = math.prod(len(axis.levels) for axis in axes)
    if count > MOST_CELLS:
        raise ConfigError(
            f"{source}: its axes make {count} cells, more than {MOST_CELLS}; split the study"
        )
    for chosen in itertools.product(*(axis.levels for axis in axes)):
        levels = {axis.name: level for axis, (level, _) in zip(axes, chosen, strict=True)}
        yield levels, {name: value for _, keys in chosen for name, value in keys.items()}


def _check_keys(study: Study, axes: list[Axis], *, source: str) -> None:
    """Refuse a key that two places set, and those that belong to the study."""
    setters: dict[str, str] = dict.fromkeys(flatten(study.set), "set")
    for axis in axes:
        for name in dict.fromkeys(name for _, keys in axis.levels for name in keys):
            if name in setters:
                raise ConfigError(
                    f"{source}: {name} is set by axis {axis.name} and by {setters[name]}; "
                    "let one of them set it"
                )
            setters[name] = f"axis {axis.name}"
    for name in ("kind", "question"):
        if name in setters:
            raise ConfigError(
                f"{source}: {name} is one for all cells of a study; remove it from {setters[name]}"
            )


def is_same(one: Any, other: Any) -> bool:
    """Equality that tells true from 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _holds(condition: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    return all(
        any(is_same(told[name], one) for one in (wish if isinstance(wish, list) else [wish]))
        for name, wish in condition.items()
    )


def _left_out_by_level(study: Study, levels: Mapping[str, Any]) -> bool:
    """Whether a condition on axes alone leaves it out: such a cell need not even be valid."""
    return any(
        _holds(condition, levels) for condition in study.leave_out if set(condition) <= set(levels)
    )


def _without_left_out(
    study: Study, cells: list[Cell], axes: list[Axis], *, source: str
) -> list[Cell]:
    for condition in study.leave_out:
        _check_condition(condition, axes, cells, source=source)
    by_key = [one for one in study.leave_out if not set(one) <= {axis.name for axis in axes}]
    return [
        cell for cell in cells if not any(_holds(condition, _told(cell)) for condition in by_key)
    ]


def _told(cell: Cell) -> Tree:
    return flatten(to_tree(cell.config)) | cell.levels


def _check_condition(
    condition: Mapping[str, Any], axes: list[Axis], cells: list[Cell], *, source: str
) -> None:
    by_name = {axis.name: axis for axis in axes}
    known = list(_told(cells[0])) if cells else list(by_name)
    for name, wish in condition.items():
        if name not in known and cells:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{source}: leave_out: {name} is neither an axis nor a key{hint}")
        levels = [level for level, _ in by_name[name].levels] if name in by_name else None
        for one in wish if isinstance(wish, list) else [wish]:
            if levels is not None and not any(is_same(one, level) for level in levels):
                there = ", ".join(map(str, levels))
                raise ConfigError(
                    f"{source}: leave_out: axis {name} has no level {one!r}; it has {there}"
                )


def _checked(cells: list[Cell], *, source: str) -> list[Cell]:
    """The cells, of which there are some and no two are the same."""
    if not cells:
        raise ConfigError(f"{source}: leave_out leaves out every cell; loosen its conditions")
    seen: dict[str, str] = {}
    for cell in cells:
        text = repr(cell.config)
        if text in seen:
            raise ConfigError(
                f"{source}: cells {seen[text]} and {cell.name} are the same config; remove one of "
                "their levels (runs that are alike are what repeats is for)"
            )
        seen[text] = cell.name
    return cells
