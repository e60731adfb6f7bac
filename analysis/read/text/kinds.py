"""Read a text into tables: one for each kind of line that it repeats.

A line is cut at its numbers. Lines with the same text between their numbers have one shape, whose
values are named once; shapes with the same names are one kind.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from analysis.read.columns import Rows, join
from analysis.read.epochs import regularity
from analysis.read.run_log import Ints
from analysis.read.text.fields import (
    BAR,
    BAR_STEP,
    LONGEST_LINE,
    Field,
    announced,
    fields_of,
    has_letters,
    named_by_header,
    with_epoch_of_bar,
)
from analysis.read.text.pieces import Piece
from analysis.read.text.values import (
    clocks,
    has_decimal_commas,
    likelier,
    moments,
    numbers,
    with_points,
)
from analysis.read.vocabulary import is_loss, meaning
from analysis.stats.intervals import Floats

MOST_SHAPES, MOST_KINDS, MOST_HEADERS = 20_000, 40, 8
RANK, FEWEST_RANKS = "|rank|", 5
# Lines that name epochs name the next one so often.
EVERY_EPOCH = 0.8
# A date of which the file tells whether its month or its day is first.
_TWO_ORDERS = re.compile(r"\d\d[-/.]\d\d(?:[-/.]\d{4})? ")
_THOUSANDS_OR_DECIMALS = re.compile(r"\d{1,3},\d{3}")
_GLUED = re.compile(r"[A-Za-z_./-]")
# Possessive, and without the words unless a piece has one: half of the time is spent here.
_DIGITS = r"[0-9]++(?:[.:][0-9]++|[,_'][0-9]{3}(?![0-9]))*+(?:[eE][-+]?[0-9]++)?+"
_TOKEN = re.compile(rf"({_DIGITS})")
# What stands in a line for its numbers.
_HOLE, _NEWLINE = "\0", ord("\n")
# The text between the numbers of a line, and the numbers that belong to words.
Key = str | tuple[str, ...]
_TOKEN_OR_WORD = re.compile(rf"({_DIGITS}|nan\b|NaN\b|inf\b)")


@dataclass(kw_only=True, eq=False)
class Kind:
    """Lines with the same fields: `rows` has a column for each field, by its key.

    The total of a field is the column `KEY/of`. `decimals` are fields with a value that has a
    fraction, `rounded` those with one of a few digits, `1.58e+04`, `with_commas` those that always
    have a comma that may be of thousands or of decimals. `sample` is a line of the kind.
    """

    head: str
    fields: dict[str, Field]
    sample: str
    shapes: list["Shape"] = field(default_factory=list)
    rows: Rows = field(default_factory=lambda: Rows({}))
    decimals: set[str] = field(default_factory=set)
    rounded: set[str] = field(default_factory=set)
    with_commas: set[str] = field(default_factory=set)
    count: int = 0

    def is_one_with(self, other: "Kind") -> bool:
        """Whether the fields of one are at least half of the other's, or both draw the same bar.

        Such a bar begins with a count and its total: `99/99 - ETA: 9s - loss: 5.0`, and at the end
        `99/99 - 12s - loss: 3.0 - val_loss: 2.5`.
        """
        few, many = sorted((self.fields, other.fields), key=len)
        first = next(iter(few))
        is_count = few[first].total is not None and not few[first].name
        is_bar = is_count and first == next(iter(many))
        is_part = few.keys() <= many.keys() and 2 * len(few) >= len(many)
        is_same_bar = is_bar and len(few.keys() & many.keys()) > 1
        return self.head == other.head and (is_part or is_same_bar)


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """A column of a shape: the numbers of a line from `first` to `last`, with text around them."""

    column: str
    form: str
    first: int
    last: int
    before: str
    after: str


class Shape:
    """Lines that differ in their numbers alone; those in words, as of `loss_2`, are the same."""

    def __init__(self, gaps: list[str], numbers: list[str], headers: list[str]) -> None:
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
        known = headers if BAR_STEP in {f"|{one.form}|" for one in found} else headers[:1]
        named = (named_by_header(found, self.sample, header) for header in known)
        found = next((fields for fields in named if fields is not found), found)
        for one in with_epoch_of_bar(found, self.sample):
            key = one.key
            while not one.name and key in self.fields:
                key += "#"
            is_again = key in self.fields
            cell = self._cell(f"{key}/again" if is_again else key, one.form, one.place)
            if cell is None:
                continue
            if is_again:
                self.cells += [cell] if is_loss(one.name) else []
                continue
            self.fields[key] = one
            total = one.total and self._cell(f"{key}/of", "number", one.total)
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

    def _cell(self, column: str, form: str, place: tuple[int, int]) -> _Cell | None:
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
            column=column, form=form, first=inside[0], last=inside[-1], before=before, after=after
        )

    def convert(
        self, piece: Piece, numbers: NDArray[np.object_], first: Ints, places: Ints
    ) -> None:
        """Add a row for each of `n` lines of a piece.

        `first` [n] are the places of a line's first number in all of the piece, and `places` [n]
        those in its text.
        """
        columns = {
            "line": piece.lines_at(places).astype(np.float64),
            "place": (places + piece.offset).astype(np.float64),
        }
        for cell in self.cells:
            texts = numbers[first + cell.first].tolist()
            for number in range(cell.first + 1, cell.last + 1):
                parts = zip(texts, numbers[first + number].tolist(), strict=True)
                texts = [*map(self.gaps[number].join, parts)]
            columns[cell.column] = self._values(cell, texts)
            if cell.form == "stamp" and _TWO_ORDERS.match(texts[0]):
                columns[f"{cell.column}/day"] = moments(texts, day_first=True)
        self.parts.append(Rows(columns))

    def _values(self, cell: _Cell, texts: list[str]) -> Floats:
        if cell.before or cell.after:
            texts = [f"{cell.before}{text}{cell.after}" for text in texts]
        if cell.form == "stamp":
            return moments(texts)
        if cell.form in ("clock", "bar clock"):
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
        return numbers(texts)


@dataclass(kw_only=True)
class Text:
    """The contents of a text: its kinds of lines, the commonest first, and its epochs by place.

    `phases` are lines without a value that announce training or an evaluation: their places and
    whether it is an evaluation. `numbered` counts the lines with a number, `cut` those too long to
    be read to their end. `headers` are the last lines without a number, the newest first.
    `has_commas` says that decimals stand behind commas.
    """

    kinds: list[Kind] = field(default_factory=list)
    epochs: Rows = field(default_factory=lambda: Rows({}))
    phases: list[tuple[int, bool]] = field(default_factory=list)
    lines: int = 0
    numbered: int = 0
    cut: int = 0
    headers: list[str] = field(default_factory=list)
    has_commas: bool = False

    def add_header(self, line: str) -> None:
        """Add a line that may head a table; one that came before is the newest again."""
        self.headers = [line, *(one for one in self.headers if one != line)][:MOST_HEADERS]


def read_kinds(pieces: Iterable[Piece]) -> Text:
    """Return the kinds of lines with a value; those with the same fields, or some of them, as one.

    A stamp or a rank alone is no value. Shapes beyond `MOST_SHAPES` are not read.
    """
    text = Text()
    shapes: dict[Key, Shape] = {}
    for piece in pieces:
        _read_piece(piece, shapes, text)
    kinds: dict[tuple[str, ...], Kind] = {}
    for shape in dict.fromkeys(shapes.values()):
        if shape.has_value:
            kind = kinds.setdefault(
                (shape.head, *shape.fields),
                Kind(head=shape.head, fields=shape.fields, sample=shape.sample),
            )
            kind.shapes.append(shape)
            kind.count += sum(map(len, shape.parts))
    every = sorted(kinds.values(), key=lambda kind: (not _is_of_training(kind), -kind.count))
    text.kinds = [_filled(kind) for kind in _merged(every[: 4 * MOST_KINDS])]
    text.epochs = _epochs(every)
    return text


@dataclass(frozen=True, kw_only=True)
class _Lines:
    """The lines of a piece: the text between their numbers, these numbers, and where each begins.

    `gaps` [n] have a `_HOLE` for each number, `numbers` are those of all lines, `first` [n] is the
    first one of each line in them, and `place` [n] where each line begins.
    """

    gaps: list[str]
    numbers: NDArray[np.object_]
    first: Ints
    place: Ints
    text: str

    def whole(self, line: int) -> str:
        """Return a line as it was printed."""
        begin = int(self.place[line])
        end = self.text.find("\n", begin)
        return self.text[begin : end if end >= 0 else len(self.text)]


def _read_piece(piece: Piece, shapes: dict[Key, Shape], text: Text) -> None:
    """Add the lines of a piece to their shapes.

    A shape is found by the text between its numbers, and one in which numbers belong to words by
    these numbers, too. Lines of a shape that is known and has a value are taken all at once.
    """
    lines = _lines_of(piece.text, text)
    known = np.array([*map(shapes.get, lines.gaps)], dtype=object)
    of = defaultdict[Shape, list[int]](list)
    counts = np.diff(lines.first)
    text.lines += len(lines.gaps) - (piece.text[-1:] == "\n")
    text.numbered += int((counts > 0).sum())
    before = None
    for line, (gaps, shape) in enumerate(zip(lines.gaps, known.tolist(), strict=True)):
        if shape is not None and shape.is_plain:
            of[shape].append(line)
            continue
        if gaps == before:
            # Of words that come again at once the first line says all.
            continue
        words = gaps
        if counts[line]:
            own = lines.numbers[lines.first[line] : lines.first[line + 1]].tolist()
            key: Key = gaps
            shape = shapes.get(key)
            if shape is not None and shape.fixed:
                key = (gaps, *(own[n] for n in shape.fixed))
                shape = shapes.get(key)
            if shape is None and len(shapes) < MOST_SHAPES:
                shape = shapes[key] = Shape(gaps.split(_HOLE), own, text.headers)
            if shape is not None and shape.has_value:
                of[shape].append(line)
                continue
            words = shape.words if shape is not None else ""
        before = gaps if shape is None or not shape.fixed else None
        if words and has_letters(words):
            text.add_header(lines.whole(line))
            if (phase := announced(words)) is not None:
                text.phases.append((piece.offset + int(lines.place[line]), phase))
    for shape, own_lines in of.items():
        shape.convert(piece, lines.numbers, lines.first[own_lines], lines.place[own_lines])


def _lines_of(printed: str, text: Text) -> _Lines:
    """Return the lines of a piece, with points for decimal commas, cut if they are too long.

    One search for all lines takes half of the time of one for each.
    """
    if text.has_commas:
        printed = with_points(printed)
    ends = np.flatnonzero(np.frombuffer(printed.encode("latin-1"), dtype=np.uint8) == _NEWLINE)
    place = np.concatenate([[0], ends + 1])
    too_long = int((np.diff(place, append=len(printed) + 1) > LONGEST_LINE + 1).sum())
    if too_long:
        text.cut += too_long
        cut = (line[:LONGEST_LINE].ljust(len(line)) for line in printed.split("\n"))
        printed = "\n".join(cut)
    has_words = any(word in printed for word in ("nan", "NaN", "inf"))
    tokens = (_TOKEN_OR_WORD if has_words else _TOKEN).split(printed)
    gaps, numbers = _HOLE.join(tokens[::2]), tokens[1::2]
    may_have_commas = f"{_HOLE},{_HOLE}" in gaps or f"{_HOLE}0," in _HOLE.join(numbers)
    if may_have_commas and not text.has_commas and has_decimal_commas(printed):
        text.has_commas = True
        return _lines_of(printed, text)
    signs = np.frombuffer(gaps.encode("latin-1"), dtype=np.uint8)
    holes = np.cumsum(signs == ord(_HOLE))
    before = holes[np.flatnonzero(signs == _NEWLINE)]
    return _Lines(
        gaps=gaps.split("\n"),
        numbers=np.array(numbers, dtype=object),
        first=np.concatenate([[0], before, [len(numbers)]]),
        place=place,
        text=printed,
    )


def _is_of_training(kind: Kind) -> bool:
    """Whether lines of a kind are a bar or name a loss: few may stand among many others."""
    return BAR_STEP in kind.fields or any(is_loss(one.name) for one in kind.fields.values())


def _in_units_of(kind: Kind, other: Kind) -> Kind:
    """Return a kind with its values in the units of another: `ETA: 27.0m` and `ETA: 1.8h`.

    It is the kind itself if they do not have the same values.
    """
    names = {(one.name, one.form): key for key, one in other.fields.items() if one.name}
    renamed = {key: names.get((one.name, one.form), key) for key, one in kind.fields.items()}
    if renamed.keys() == set(renamed.values()) or set(renamed.values()) != other.fields.keys():
        return kind
    factors = {
        key: meaning(one.name, one.unit)[1] / meaning(one.name, other.fields[renamed[key]].unit)[1]
        for key, one in kind.fields.items()
    }
    for shape in kind.shapes:
        shape.parts = [
            Rows({renamed.get(n, n): factors.get(n, 1.0) * c for n, c in part.columns.items()})
            for part in shape.parts
        ]
    return replace(kind, fields=other.fields)


def _merged(kinds: list[Kind]) -> list[Kind]:
    merged: list[Kind] = []
    for kind in kinds:
        for one in merged:
            kind = _in_units_of(kind, one) if kind.head == one.head else kind
            if one.is_one_with(kind):
                few, many = sorted((one.fields, kind.fields), key=len)
                one.fields = {**many, **few}
                one.shapes += kind.shapes
                one.count += kind.count
                break
        else:
            merged.append(kind)
    return sorted(merged[:MOST_KINDS], key=lambda kind: -kind.count)


def _filled(kind: Kind) -> Kind:
    rows = join([part for shape in kind.shapes for part in shape.parts])
    if len(kind.shapes) > 1:
        rows = rows.take(np.argsort(rows["place"], kind="stable"))
    for column in kind.fields:
        if f"{column}/day" in rows:
            rows = rows.replace(**{column: likelier(rows[column], rows[f"{column}/day"])})
    kind.rows = rows
    if len(rows) >= FEWEST_RANKS and len(np.unique(rows[RANK])) > len(rows) / 2:
        # A number that hardly comes again is a count: `1136: 0.68, 0.79 avg loss`.
        kind.fields = {
            key: replace(one, form="number") if key == RANK else one
            for key, one in kind.fields.items()
        }
    kind.decimals = set().union(*(shape.decimals for shape in kind.shapes))
    kind.rounded = set().union(*(shape.rounded for shape in kind.shapes))
    kind.with_commas = set().union(*(shape.with_commas for shape in kind.shapes))
    return kind


def _epochs(kinds: Iterable[Kind]) -> Rows:
    """Return the epochs that lines of any kind name, by place, unless they name only some."""
    found = []
    for kind in kinds:
        for key, one in kind.fields.items():
            shapes = [shape for shape in kind.shapes if key not in shape.decimals]
            if one.name.strip().lower() == "epoch" and one.form == "number" and shapes:
                rows = join([part for shape in shapes for part in shape.parts])
                rows = rows.take(np.argsort(rows["place"], kind="stable"))
                # `best so far at epoch 7` is no line that an epoch begins with.
                if regularity(rows[key]) >= EVERY_EPOCH:
                    found.append(Rows({"place": rows["place"], "epoch": rows[key]}))
    rows = join(found) if found else Rows({"place": np.zeros(0), "epoch": np.zeros(0)})
    return rows.take(np.argsort(rows["place"], kind="stable"))
