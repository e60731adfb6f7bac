"""Conditions on the rows of a table, as exit codes for scripts: `--fail-if "speedup<0.97"`."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.errors import Unreadable

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"\s*([\w ./%-]+?)\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A column, an operator and a value: a number, or text for == and !=."""

    text: str
    column: str
    operator: str
    value: float | str

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        """Return whether it holds for a row, or None if the row has no such value."""
        found = row.get(self.column)
        if found is None:
            return None
        if isinstance(found, str) != isinstance(self.value, str):
            raise Unreadable(f"--fail-if {self.text}: {self.column} is {found!r}")
        return _OPERATORS[self.operator](found, self.value)


def parse_condition(text: str) -> Condition:
    """Parse `speedup<0.97` or `verdict==different`; raise `Unreadable` for anything else."""
    match = _FORM.fullmatch(text)
    if not match:
        raise Unreadable(f"--fail-if {text!r}: expected COLUMN<VALUE, such as speedup<0.97")
    try:
        value: float | str = float(match[3])
    except ValueError:
        value = match[3].strip("\"'")
    if isinstance(value, str) and match[2] not in ("==", "!="):
        raise Unreadable(f"--fail-if {text!r}: {match[3]!r} is not a number")
    return Condition(text=text, column=match[1], operator=match[2], value=value)


def failing(
    rows: Sequence[Mapping[str, Any]], conditions: Sequence[Condition]
) -> tuple[bool, list[str]]:
    """Return whether any condition holds for any row, and remarks.

    There is a remark on each condition that holds or cannot be decided.
    """
    failed, remarks = False, []
    for condition in conditions:
        known = {name for row in rows for name in row}
        if rows and condition.column not in known:
            columns = ", ".join(sorted(known))
            raise Unreadable(f"--fail-if {condition.text}: no such column; there are {columns}")
        results = [condition.holds(row) for row in rows]
        if any(results):
            failed = True
            remarks.append(f"failed: {condition.text}")
        elif not any(held is not None for held in results):
            remarks.append(f"not decided: {condition.text} (no row has a {condition.column})")
    return failed, remarks
