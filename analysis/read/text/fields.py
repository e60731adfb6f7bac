"""The values of a line of text with their names and units."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from analysis.read.text.values import STAMP
from analysis.read.vocabulary import (
    EVALUATION,
    is_evaluation,
    is_loss,
    key_of,
    meaning,
    takes_phase,
    tells_unit,
)

LONGEST_LINE, MOST_FIELDS, HEAD = 8000, 200, 100
# The key of the field by which a kind of line is known as a bar.
BAR_STEP = "|bar step|"
_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d*+)?(?:[eE][-+]?\d++)?"
    r"|[-+]?\.\d+(?:[eE][-+]?\d+)?|[nN][aA][nN]|[-+]?[iI]nf(?:inity)?"
)
_UNIT = (
    r" ?(?:ms|msecs?|s|secs?|seconds?|mins?|minutes|h|hours)(?:/[a-z]+)?(?![\w/])"
    r"| ?(?:[A-Za-z]+ ?)?/ ?(?:s|sec|second)(?![\w/])|%|[A-Za-z]{1,6}(?:/[A-Za-z]{1,12})?(?!\w)"
    r"|(?:-?(?:st|nd|rd|th))?[ -](?:(?:mini-?)?batch(?:es)?|steps?|iterations?|iters?|epochs?"
    r"|updates?)"
    r"(?!\w|[ \t]+\d)"
)
# A number may follow a word without a blank only if it counts: `epoch4`, `step100/174`, `[E4]`.
_BEFORE = (
    r"(?:(?<![\w@])|(?<=\b[eE]poch)|(?<=\bEPOCH)|(?<=\b[sS]tep)|(?<=\b[iI]ter)|(?<=\b[bB]atch)"
    r"|(?<=\b[iI]teration)|(?<=\[E))"
)
_VALUE = re.compile(
    rf"(?P<stamp>{STAMP.pattern})"
    r"|(?<![\w.:])(?P<clock>(?:\d{1,5} days?, ?)?\d{1,6}:\d\d(?::\d\d)?(?:\.\d+)?"
    r"|\d{1,5}d \d{1,2}h \d{1,2}m|(?:\d{1,2}h ?)?\d{1,2}m ?\d{1,2}s)(?![\w:])"
    rf"|{_BEFORE}(?<!\w[.\\])(?<![\s\[]\d\d:)(?:(?<!\d,)|(?=\d+\.))"
    # Neither part of `0,35` is a number.
    rf"(?P<number>{_NUMBER})(?!(?:[.:_-]|,(?!\d{{3}}\b|\d+\.))?\d)"
    rf"(?:[ \t]*/[ \t]*(?P<total>\d+)(?![\w.]))?(?P<unit>(?:{_UNIT})(?![ \t]*[:=]))?(?!\w)"
)
# What ends a name on its left, and signs between a name and its value.
_ENDS = re.compile(r"[,;:=|\[\]{}()<>\"'\t*#!]|  +| - | / |(?<![aA]vg)\. |->|=>|[^\x20-\x7e]+")
# `tensor(0.5, device='cuda:0')`, and what Python 2 prints: `('loss: ', 0.5)`.
_WRAPPED = re.compile(r"(?:[:=]? ?['\"], ?\[?)?(?:(?:tensor|array|(?:np\.)?float(?:32|64))\(\[?)?$")
# `[Epoch] 5`, and `Step, 5, Loss, 0.3`.
_FRAMED = re.compile(r"(?:\[|^|^, ?)([A-Za-z]\w*)(?:\]|,)$")
_SOURCE = re.compile(r"\.(?:py|cpp|cc|cu|lua)$")
_UNIT_IN_NAME = re.compile(r"(.*?) ?[(\[]([A-Za-z/]{1,12})[)\]]")
_SIGNS = " \t:=<>([{\"'|#~→-"
# Whose loss it is, if not that of the weights which are trained.
_OTHER_WEIGHTS = frozenset(["ema", "swa", "teacher", "averaged"])
# Words between a name and its value: `loss so far is 5`.
_LINKS = re.compile(r"(?: (?:is|was|so far|of|equals|value|took|taken))+$")
# `Loss at step 5: 0.3`: the name of a value stands before the count.
_SUBJECT = re.compile(
    r"(?P<name>[A-Za-z][\w@/]*(?: [\w@/]+){0,4}) (?:at|for|after|in|on|of) (?:the )?"
    r"(?P<count>[A-Za-z]+ ?[#:]? ?)?$"
)
_COUNTED = re.compile(r" ?(epoch|step|iteration|iter|batch|update)(?:s|es)? ?(?=[:=])")
_IS = re.compile(
    r"(?: ?(?:epoch|step|iteration|iter|batch|update)(?:s|es)?)?[)\]]? ?(?::|=|->|is|was) ?"
)
_AND = re.compile(r",? (?:and )?[A-Za-z]+ ")
_NOISE = frozenset(
    ["info", "debug", "warning", "root", "main", "at", "after", "the", "for", "in", "of", "with",
     "and", "has"]
)  # fmt: skip
# A number behind its name, and none before a unit of its own, as in `295.4 ms/step 867 img/s`.
_NAMED_BEFORE = re.compile(
    r"[ \t]+[-+]?[\d.]+(?:[eE][-+]?\d+)?(?!\S|[ \t]*[A-Za-z]+/(?![^\n]*\d\W*$))"
)
# A count with such a word is of something else: the best epoch, the number of epochs.
_OTHER_COUNT = frozenset(
    ["best", "num", "number", "n", "max", "maximum", "per", "every", "remaining", "start", "end",
     "from", "warmup", "next", "resume", "resuming", "patience"]
)  # fmt: skip
_MODIFIERS = frozenset(
    ["train", "training", "avg", "average", "mean", "total", "current", "batch", "epoch", "running",
     "global", "overall", "step", "last"]
)  # fmt: skip
_QUALIFIER = re.compile(
    rf"(?<![\w/.-])(?:(train|training)|{'|'.join(sorted(EVALUATION))})(?![\w/]|\.\w)", re.IGNORECASE
)
_CLOCK = r"(?:\d{1,5} days?, )?\d{1,6}:\d\d(?::\d\d)?"
_RATE = r", *[.\d]+(?:s/ ?\w+|\w+/s)"
# ai-toolkit, kohya, diffusers, accelerate, Lightning: the head of a bar of tqdm, whose total may
# not be known, `18it [04:48, 17.03s/it`.
BAR = re.compile(
    r"(?:\d{1,3}%[ \t]*+(?:\|[^\n|]{0,1500}+\|)?|\|[^\n|]{0,1500}+\|)[ \t]*+"
    r"(?P<step>\d{1,15})/(?P<of>\d{1,15}) "
    rf"\[(?P<clock>{_CLOCK})<[^,\]\n]{{0,30}}(?:{_RATE})?"
    rf"|(?<![\w./])(?P<count>\d{{1,15}}) ?[a-z]{{1,12}} \[(?P<passed>{_CLOCK}){_RATE}"
    # That of Ultralytics: `100% ━━━━ 50/50 4.6it/s 10.8s`.
    r"|\d{1,3}% [^\x00-\x7f ]{3,400} (?P<drawn>\d{1,15})/(?P<total>\d{1,15}) "
    r"[.\d]+(?:it/s|s/it) (?P<took>(?:\d{1,2}:)?\d{1,2}:\d\d|\d{1,2}\.\ds)(?:<[:.\ds]{1,12})?"
)
_OF_BAR = {
    "count": "step", "passed": "clock", "drawn": "step", "total": "of", "took": "clock",
}  # fmt: skip
NOT_TRAINING = re.compile(
    r"(?i:load|download|fetch|map|token|generat|valid|\bval\b|eval|\btest|sampl|infer|cach|encod|"
    r"filter|process|sanity|saving|render|extract|convert|predict|shard|upload)"
)
# What a program does between two states of its bar.
PAUSE = re.compile(r"(?i:generat|sampl|validat|evaluat|\bsav(?:ing|ed)\b)")
# Cells of a table are apart by two blanks, tabs or bars.
_CELL = re.compile(r"[^\s|]+(?: [^\s|]+)*")
FEWEST_COLUMNS = 3
# As the tutorials of PyTorch print it.
_PAIR = re.compile(r"\[ *(\d+) *, *(\d+) *\]\W{0,3}(?:\w+ )?loss", re.IGNORECASE)
# What a launcher puts in front of the lines of a rank.
_RANKS = (
    re.compile(r"\[(?:rank|RANK|Rank|R|default) ?(?P<rank>\d{1,6})\]"),
    re.compile(r"\A {0,5}(?P<rank>\d{1,6}): "),
)


_OF_FORM = {
    "stamp": "time", "rank": "rank", "bar step": "step", "bar of": "of", "bar clock": "bar_s",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Field:
    """One value of a line: its name and unit as printed, and where it stands in the line.

    `form` is `number`, `clock` (a duration), `stamp`, `rank`, or, of a bar, `bar step`, `bar of`
    or `bar clock`. A total follows a slash: `total` is its place. `context` is the text before the
    value by which it is found again.
    """

    name: str
    form: str
    place: tuple[int, int]
    unit: str = ""
    total: tuple[int, int] | None = None
    context: str = ""

    @property
    def key(self) -> str:
        """The key of the field among those of its kind of line."""
        named = key_of(self.name) or " ".join(self.context.replace(",", " ").split())
        return f"{named}|{self.form}|{self.unit.strip()}"

    @property
    def meaning(self) -> tuple[str, float]:
        """The column and the factor of the field; "" for what is no number of the training."""
        if self.form in _OF_FORM:
            return _OF_FORM[self.form], 1.0
        if self.form == "clock":
            column = meaning(self.name)[0]
            is_clock = not self.name or column in ("duration_s", "elapsed_s", "epoch_s", "step_s")
            return (column if self.name and is_clock else "day_s" if is_clock else ""), 1.0
        if not self.name and not re.search(r"/|^ ?m?s", self.unit):
            return "", 1.0
        column, factor = meaning(self.name, self.unit)
        return column or key_of(self.name).replace(" ", "_"), factor

    @property
    def has_unit(self) -> bool:
        """Whether a time names its unit."""
        return self.form == "clock" or tells_unit(self.name, self.unit)


def fields_of(line: str) -> tuple[list[Field], str]:
    """Return the values of a line, in order, and the word before them that names its phase.

    `[VAL] step 5 loss 2` and `Train: loss 3 | Val: loss 2`: a phase is that of all values up to
    the next one. The head of a bar is one of the training, unless the words before it tell.
    """
    line = line[:LONGEST_LINE]
    found, head = list[Field](), ""
    if bar := BAR.search(line):
        head = " ".join(re.sub(r"[\d\W]+", " ", line[: bar.start()]).split())
        if not NOT_TRAINING.search(line[: bar.start()]):
            found += [
                Field(name="", form=f"bar {_OF_BAR.get(name, name)}", place=bar.span(name))
                for name, text in bar.groupdict().items()
                if text
            ]
            head = f"bar {head}"
        line = _without(line, *bar.span())
    else:
        for rank in filter(None, (known.search(line[:HEAD]) for known in _RANKS)):
            found = found or [Field(name="", form="rank", place=rank.span("rank"))]
            line = _without(line, *rank.span())
    values, phase = _values(line)
    return [*found, *values][:MOST_FIELDS], head or phase


@lru_cache(maxsize=4096)
def has_letters(line: str) -> bool:
    """Whether there is a word in a line, which may name what follows."""
    return re.search(r"[A-Za-z]{2}", line) is not None


def named_by_header(fields: list[Field], line: str, header: str) -> list[Field]:
    """Return the values of a line with the names in a line above it, if these are its columns."""
    names = [cell[0] for cell in _CELL.finditer(header[:LONGEST_LINE].replace(",", "  "))]
    cells = [cell.span() for cell in _CELL.finditer(line[:LONGEST_LINE])]
    in_cells = [
        [one for one in fields if begin <= one.place[0] < end and not one.form.startswith("bar")]
        for begin, end in cells
    ]
    while len(cells) > len(names) and not re.search(r"\d", line[slice(*cells[-1])]):
        # A unit behind the last number.
        cells.pop()
        in_cells.pop()
    is_bar = any(one.form == "bar step" for one in fields)
    if len(names) < FEWEST_COLUMNS or not (len(cells) == len(names) or is_bar):
        return fields
    if not all(len(inside) == 1 and not inside[0].name for inside in in_cells[: len(names)]):
        return fields
    pairs = zip(in_cells, names, strict=False)
    found = {id(inside[0]): name for inside, name in pairs if inside[0].form != "stamp"}
    return [replace(one, name=found.get(id(one), one.name)) for one in fields]


def _without(line: str, begin: int, end: int) -> str:
    """Return a line with signs that end a name in place of a part of it."""
    return line[:begin] + "," * (end - begin) + line[end:]


def _values(line: str) -> tuple[list[Field], str]:
    """Return the values of a line without a bar, and the phase that it begins with."""
    found, last, phase, head, subject = list[Field](), 0, "", "", ""
    for match in _VALUE.finditer(line):
        gap, last = line[last : match.start()], match.end()
        unit_behind = match["unit"] or ""
        if re.match(" .*/", unit_behind) and _NAMED_BEFORE.match(line[last:]):
            # The name of the next value: `loss 0.35 steps/sec 2.0`.
            last, unit_behind = match.start("unit"), ""
        if match["stamp"]:
            found.append(Field(name="", form="stamp", place=match.span("stamp")))
            continue
        name, unit, start, whose = _named(gap)
        if subject and _IS.fullmatch(gap):
            name, start = subject, 0
        about = _SUBJECT.search(gap)
        counted = _COUNTED.match(line, match.end())
        if about and not about["count"]:
            # `Loss after 5 epochs: 0.3`.
            name, about = (counted[1], about) if counted else (name, None)
        subject = about["name"] if about else subject if _AND.fullmatch(gap) else ""
        is_first = not any(one.form != "stamp" for one in found)
        head = whose if is_first else head
        for word in _QUALIFIER.finditer(gap[:start]):
            phase = "" if word[1] else word[0].lower()
            start = word.start()
            head = word[0] if is_first else head
        unit = unit or unit_behind
        is_count = meaning(name)[0] in ("step", "epoch")
        if (gap.endswith("#") and not is_count) or _SOURCE.search(name):
            # The number of an output or of a source line.
            if own := _QUALIFIER.match(name):
                phase = "" if own[1] else own[0].lower()
            continue
        if match["total"] and (own := _QUALIFIER.fullmatch(name)):
            # `[ Valid | 7/99 ] loss = 2`: the number counts, and what follows is of the phase.
            phase = "" if own[1] else name.lower()
        elif phase and not is_evaluation(name) and takes_phase(name):
            name = f"{phase} {name}"
        names = [one.name for one in found]
        if name in names and is_loss(name) and any(map(is_evaluation, names[names.index(name) :])):
            # `Train-acc: 0.9, loss: 0.1 | Val-acc: 0.8, loss: 0.2`
            name = f"val {name}"
        form = "clock" if match["clock"] else "number"
        total = match.span("total") if match["total"] else None
        found.append(
            Field(
                name=name,
                unit=unit,
                context=gap[start:],
                form=form,
                place=match.span(form),
                total=total,
            )
        )
    return _with_pair(line, found), head


def _with_pair(line: str, fields: list[Field]) -> list[Field]:
    """Return the values of a line in which `[2,  4000]` is an epoch and a step of it."""
    pair = _PAIR.search(line)
    if pair is None:
        return fields
    names = {pair.span(1): "epoch", pair.span(2): "step"}
    return [replace(one, name=names.get(one.place, one.name)) for one in fields]


@lru_cache(maxsize=4096)
def _named(gap: str) -> tuple[str, str, int, str]:
    """Return the name at the end of the text before a value, its unit, and where it begins.

    The last are the words before the name of whose value it is: `EMA` of `EMA step`.
    """
    head = _WRAPPED.sub("", gap).rstrip(_SIGNS)
    unit = ""
    if (framed := _FRAMED.search(head)) and (meaning(framed[1])[0] or is_loss(framed[1])):
        head = head[: framed.end(1)]
    if match := _UNIT_IN_NAME.fullmatch(head[-80:]):
        head, unit = head[: -len(match[2]) - 2].rstrip(), match[2]
    head = _LINKS.sub("", head)
    ends = [end.end() for end in _ENDS.finditer(head)]
    start = ends[-1] if ends else 0
    words = head[start:].split()
    kept, whose = words[-5:], ""
    while len(kept) > 1 and kept[0].lower().strip("-.") in _NOISE | {""}:
        kept = kept[1:]
    for first in range(len(kept)):
        rest, before = " ".join(kept[first:]), [word.lower() for word in kept[:first]]
        is_sentence = bool(before) and before[-1] in _NOISE - {"of"}
        is_known = rest.lower() != "time" and meaning(rest)[0] != ""
        is_place = before[-2:] in (["end", "of"], ["start", "of"])
        if not is_known or (_OTHER_COUNT & set(before) and not (is_sentence or is_place)):
            continue
        if is_sentence or not (_is_shared(rest) and set(before) - _MODIFIERS - _NOISE):
            if is_sentence or not set(before) & _MODIFIERS:
                whose = " ".join(word for word in before if word in _OTHER_WEIGHTS)
                kept = kept[first:]
            break
    name = " ".join(kept) if kept and re.search(r"[A-Za-z]", " ".join(kept)) else ""
    if not name:
        return "", unit, max(len(gap) - 12, 0), ""
    start = head.rfind(kept[0], 0, len(head) - len(name) + len(kept[0]))
    return name, unit, start, whose


def _is_shared(name: str) -> bool:
    """Whether other quantities have this name with a word in front: `box loss`, `data time`."""
    return meaning(name)[0] in (
        "loss", "lr", "batch", "batch_number", "images", "tokens", "duration_s", "time", "grad_norm"
    )  # fmt: skip
