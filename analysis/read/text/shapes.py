"""Shapes of lines: those that differ in their numbers alone, whose values are named once."""

import re
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from analysis.read.columns import Rows
from analysis.read.run_log import Ints
from analysis.read.text.fields import (
    BAR,
    Field,
    fields_of,
    named_by_header,
)
from analysis.read.text.lines import Lines
from analysis.read.text.pieces import Piece
from analysis.read.text.values import clocks, moments, numbers, plain_numbers
from analysis.read.vocabulary import is_loss, meaning
from analysis.stats.intervals import Floats

# A date of which the file tells whether its month or its day is first.
_TWO_ORDERS = re.compile(r"\d\d[-/.]\d\d(?:[-/.]\d{4})? ")
_THOUSANDS_OR_DECIMALS = re.compile(r"\d{1,3},\d{3}")
# Fewer numbers are read sooner one by one.
FEWEST_AT_ONCE = 50
_GLUED = re.compile(r"[A-Za-z_./-]")


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """A column of a shape: the numbers of a line from `first` to `last`.

    `before` and `after` are how many signs of the text around them belong to it, and `factor`
    gives seconds of a duration.
    """

    column: str
    form: str
    first: int
    last: int
    before: int
    after: int
    factor: float


class Shape:
    """Lines that differ in their numbers alone; those in words, as of `loss_2`, are the same.

    `number` is the place of the shape among those of its text.
    """

    def __init__(
        self, gaps: list[str], numbers: list[str], headers: list[str], *, number: int
    ) -> None:
        self.number = number
        parts = [*chain.from_iterable(zip(gaps, numbers, strict=False)), gaps[-1]]
        self.sample = "".join(parts)
        self.gaps = gaps
        ends = np.cumsum([len(part) for part in parts]).tolist()
        self._spans = list(zip(ends[::2], ends[1::2], strict=False))
        self.fields: dict[str, Field] = {}
        self.cells: list[_Cell] = []
        self.decimals: set[str] = set()
        self.rounded: set[str] = set()
        self.with_commas: set[str] = set()
        self.parts: list[Rows] = []
        found, self.head = fields_of(self.sample)
        # The header of a table of bars is that of many, with other lines between.
        known = headers if any(one.form == "bar step" for one in found) else headers[:1]
        named = (named_by_header(found, self.sample, header) for header in known)
        found = next((fields for fields in named if fields is not found), found)
        for one in found:
            column, factor = meaning("", one.unit)
            # Some lines say ms, and others s.
            is_duration = one.name and column == "duration_s" and one.unit.strip() != "M"
            one, factor = (replace(one, unit="s"), factor) if is_duration else (one, 1.0)
            key = one.key
            while not one.name and key in self.fields:
                key += "#"
            is_again = key in self.fields
            cell = self._cell(f"{key}/again" if is_again else key, one.form, one.place, factor)
            if cell is None:
                continue
            if is_again:
                self.cells += [cell] if is_loss(one.name) else []
                continue
            self.fields[key] = one
            total = one.total and self._cell(f"{key}/of", "number", one.total, 1.0)
            self.cells += [cell, total] if total else [cell]
        inside = {n for cell in self.cells for n in range(cell.first, cell.last + 1)}
        outside_bar = BAR.sub(lambda bar: "," * len(bar[0]), self.sample)
        self.fixed = [
            n for n, (begin, end) in enumerate(self._spans)
            if n not in inside and _GLUED.search(outside_bar, max(begin - 1, 0), end + 1)
        ]  # fmt: skip
        self.words = " ".join(self.gaps)
        self.has_value = any(one.form not in ("stamp", "rank") for one in self.fields.values())
        self.is_plain = self.has_value and not self.fixed

    def _cell(self, column: str, form: str, place: tuple[int, int], factor: float) -> _Cell | None:
        inside = [
            n for n, (begin, end) in enumerate(self._spans)
            if place[0] <= begin and end <= place[1]
        ]  # fmt: skip
        if not inside:
            return None
        before = self.sample[place[0] : self._spans[inside[0]][0]]
        after = self.sample[self._spans[inside[-1]][1] : place[1]]
        if re.search(r"\d", before + after):
            # A part of a longer number, as of an address.
            return None
        return _Cell(
            column=column,
            form=form,
            first=inside[0],
            last=inside[-1],
            before=len(before),
            after=len(after),
            factor=factor,
        )

    def convert(self, piece: Piece, lines: Lines, own: Ints) -> None:
        """Add a row for each of its `own` lines [n] of a piece."""
        places, first = lines.place[own], lines.first[own]
        columns = {
            "line": piece.lines_at(places).astype(np.float64),
            "place": (places + piece.offset).astype(np.float64),
        }
        for cell in self.cells:
            begin = lines.begin[first + cell.first] - cell.before
            end = lines.end[first + cell.last] + cell.after
            columns[cell.column] = self._values(cell, lines, begin, end)
            if cell.form == "stamp" and _TWO_ORDERS.match(lines.text, begin[0]):
                texts = lines.texts(begin, end)
                columns[f"{cell.column}/day"] = moments(texts, day_first=True)
        self.parts.append(Rows(columns))

    def _values(self, cell: _Cell, lines: Lines, begin: Ints, end: Ints) -> Floats:
        """Return the values of a cell [n] that stand between places of the text [n]."""
        if cell.form == "stamp":
            return moments(lines.texts(begin, end))
        is_clock = cell.form in ("clock", "bar clock")
        is_many = len(begin) >= FEWEST_AT_ONCE
        plain = plain_numbers(lines.signs, begin, end, is_clock=is_clock) if is_many else None
        if plain is not None:
            values, has_point = plain
            if has_point and not is_clock:
                self.decimals.add(cell.column)
            return values * cell.factor
        texts = lines.texts(begin, end)
        if is_clock:
            return clocks(texts)
        joined = " ".join(texts)
        if "_" in joined or "'" in joined:
            texts = [text.replace("_", "").replace("'", "") for text in texts]
        if "," in joined and all(map(_THOUSANDS_OR_DECIMALS.fullmatch, texts)):
            self.with_commas.add(cell.column)
        if "e+" in joined:
            self.rounded.add(cell.column)
        elif "." in joined or "e-" in joined:
            self.decimals.add(cell.column)
        return numbers(texts) * cell.factor
