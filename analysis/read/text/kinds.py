"""Read a text into tables: one for each kind of line that it repeats.

A line is cut at its numbers. Lines with the same text between their numbers have one shape, whose
values are named once; shapes with the same names are one kind.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.read.columns import Rows, distinct, join
from analysis.read.epochs import regularity
from analysis.read.run_log import Ints
from analysis.read.text.fields import BAR_STEP, PAUSE, Field, has_letters
from analysis.read.text.lines import HOLE, Lines, cut_lines
from analysis.read.text.pieces import Piece
from analysis.read.text.shapes import Shape
from analysis.read.text.values import likelier
from analysis.read.vocabulary import is_evaluation, is_loss

MOST_SHAPES, MOST_KINDS, MOST_HEADERS = 20_000, 40, 8
RANK, FEWEST_RANKS = "|rank|", 5
# The number of no shape.
OTHER = -1
# Lines that name epochs name the next one so often.
EVERY_EPOCH = 0.8
# The text between the numbers of a line, and the numbers that belong to words.
Key = str | tuple[str, ...]


@dataclass(kw_only=True, eq=False)
class Kind:
    """Lines with the same fields: `rows` has a column for each field, by its key.

    The total of a field is the column `KEY/of`. `decimals` are fields with a value that has a
    fraction, `rounded` those with one of a few digits, `1.58e+04`, `with_commas` those that always
    have a comma that may be of thousands or of decimals. `sample` is a line of the kind, and
    `doubt` why its loss may be that of evaluations.
    """

    head: str
    fields: dict[str, Field]
    sample: str
    shapes: list[Shape] = field(default_factory=list)
    rows: Rows = field(default_factory=lambda: Rows({}))
    decimals: set[str] = field(default_factory=set)
    rounded: set[str] = field(default_factory=set)
    with_commas: set[str] = field(default_factory=set)
    count: int = 0
    remarks: list[str] = field(default_factory=list)
    doubt: str = ""

    def is_one_with(self, other: "Kind") -> bool:
        """Whether the fields of one are at least half of the other's, or both draw the same bar.

        Two with a loss may differ in the names of evaluations. Such a bar begins with a count and
        its total: `99/99 - ETA: 9s - loss: 5.0`, and at the end
        `99/99 - 12s - loss: 3.0 - val_loss: 2.5`.
        """
        few, many = sorted((self.fields, other.fields), key=len)
        first = next(iter(few))
        is_count = few[first].total is not None and not few[first].name
        is_bar = is_count and first == next(iter(many))
        is_part = few.keys() <= many.keys() and 2 * len(few) >= len(many)
        is_same_bar = is_bar and len(few.keys() & many.keys()) > 1
        is_same_bar |= BAR_STEP in few and BAR_STEP in many
        own, others = self._of_training(), other._of_training()
        is_part |= own == others and any(is_loss(self.fields[key].name) for key in own)
        return self.head == other.head and (is_part or is_same_bar)

    def _of_training(self) -> set[str]:
        return {key for key, one in self.fields.items() if not is_evaluation(one.name)}


@dataclass(kw_only=True)
class Text:
    """The contents of a text: its kinds of lines, the commonest first, and its epochs by place.

    `pauses` are the places of lines without a value that name samples, saves or evaluations.
    `numbered` counts the lines with a number, `cut` those too long to be read to their end.
    `headers` are the last lines without a number, the newest first. `is_of_losses` says that the
    file is called one of losses. `first` is the first line with a word, without its numbers, and
    `begins` are the places at which it stands.
    """

    kinds: list[Kind] = field(default_factory=list)
    epochs: Rows = field(default_factory=lambda: Rows({}))
    pauses: list[int] = field(default_factory=list)
    lines: int = 0
    numbered: int = 0
    cut: int = 0
    headers: list[str] = field(default_factory=list)
    is_of_losses: bool = False
    first: str | None = None
    begins: list[int] = field(default_factory=list)

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
    every = sorted(kinds.values(), key=lambda kind: (not is_of_training(kind), -kind.count))
    text.epochs = _epochs(every)
    text.kinds = [_filled(kind) for kind in _merged(every[: 4 * MOST_KINDS])]
    return text


def _read_piece(piece: Piece, shapes: dict[Key, Shape], text: Text) -> None:
    """Add the lines of a piece to their shapes.

    A shape is found by the text between its numbers, and one in which numbers belong to words by
    these numbers, too. Lines of a shape that is known and has a value are taken all at once.
    """
    lines = cut_lines(piece.text)
    text.cut += lines.too_long
    if text.first is None:
        text.first = next(filter(has_letters, lines.gaps), None)
    if text.first in lines.gaps:
        again = [line for line, gaps in enumerate(lines.gaps) if gaps == text.first]
        text.begins += (lines.place[again] + piece.offset).tolist()
    counts = np.diff(lines.first)
    text.lines += len(lines.gaps) - (piece.text[-1:] == "\n")
    text.numbered += int((counts > 0).sum())
    numbers = np.fromiter(
        (
            shape.number if shape is not None and shape.is_plain else OTHER
            for shape in map(shapes.get, lines.gaps)
        ),
        np.int64,
        len(lines.gaps),
    )
    _convert(piece, lines, numbers, [*shapes.values()])
    of = defaultdict[Shape, list[int]](list)
    before, at = None, 0
    for line in np.flatnonzero(numbers == OTHER).tolist():
        gaps = lines.gaps[line]
        is_again, at = gaps == before and line == at + 1, line
        if is_again:
            # Of words that come again at once the first line says all.
            continue
        words = gaps
        shape = None
        if counts[line]:
            own = lines.numbers(line)
            key: Key = gaps
            shape = shapes.get(key)
            if shape is not None and shape.fixed:
                key = (gaps, *(own[n] for n in shape.fixed))
                shape = shapes.get(key)
            if shape is None and len(shapes) < MOST_SHAPES:
                shape = Shape(gaps.split(HOLE), own, text.headers, number=len(shapes))
                shapes[key] = shape
            if shape is not None and shape.has_value:
                of[shape].append(line)
                before = None
                continue
            words = shape.words if shape is not None else ""
        before = gaps if shape is None or not shape.fixed else None
        if words and has_letters(words):
            text.add_header(lines.whole(line))
            if PAUSE.search(words):
                text.pauses.append(piece.offset + int(lines.place[line]))
    for shape, own_lines in of.items():
        shape.convert(piece, lines, np.array(own_lines))


def _convert(piece: Piece, lines: Lines, numbers: Ints, shapes: Sequence[Shape]) -> None:
    """Give lines [n] of known shapes to these, by the numbers of the shapes [n]."""
    order = np.argsort(numbers, kind="stable")
    found, begin = np.unique(numbers[order], return_index=True)
    for number, own in zip(found.tolist(), np.split(order, begin[1:]), strict=True):
        if number != OTHER:
            shapes[number].convert(piece, lines, own)


def is_of_training(kind: Kind) -> bool:
    """Whether lines of a kind are a bar or name a loss: few may stand among many others."""
    return BAR_STEP in kind.fields or any(is_loss(one.name) for one in kind.fields.values())


def _merged(kinds: list[Kind]) -> list[Kind]:
    merged: list[Kind] = []
    for kind in kinds:
        for one in merged:
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
    if len(rows) >= FEWEST_RANKS and distinct(rows[RANK]) > len(rows) / 2:
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
        names = [one.name for one in kind.fields.values() if one.name]
        if is_evaluation(kind.head) and len(names) == 1:
            # `Validation epoch 3` begins none.
            continue
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
