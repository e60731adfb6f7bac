"""Ways to read a kind of line: its columns under our names, and what stands beside it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.read.columns import Rows, distinct, falls, losses_by_other_names
from analysis.read.text.counts import EPOCH_OF_TIMM, MANY, axis_of, counted_steps
from analysis.read.text.fields import BAR_STEP
from analysis.read.text.kinds import Kind
from analysis.read.vocabulary import is_evaluation, is_loss, key_of, meaning, preference

# The last line of the Hugging Face Trainer has the mean loss of the whole training.
_SUMMARY = "train runtime|number|"
# Lines that belong to a record are as many as those that open it, within this share.
AS_MANY = 0.2
# So many of the lines that open a record may end without its loss.
MOST_FOLLOWED = 0.5
CLOCKS = ("day_s", "duration_s", "elapsed_s", "step_s", "epoch_s")
_CLOCKS_OF_RECORDS = frozenset(["step_s", "steps_per_s", "images_per_s", "epoch_s"])
# Of minutes as if they were seconds.
DAY_MIN = 1440.0
MOST_SIDES = 12
# The name of a loss in a table without names.
UNNAMED = "unnamed loss"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A kind of line with one of its counts as the step: its rows under our names.

    `axis` is what the step counts, else `epoch` or `sample`. `sides` are the other numbers of a
    record, and evaluations. `rank` is how well the step is named; low ones go first.
    """

    kind: Kind
    name: str
    rows: Rows
    axis: str
    has_step: bool
    has_axis: bool
    without_unit: frozenset[str] = frozenset()
    rank: int = 0
    loss_name: str = ""
    uncertain: dict[str, str] = field(default_factory=dict)
    sides: tuple["Candidate", ...] = ()

    @property
    def has_loss(self) -> bool:
        """Whether its lines have a training loss."""
        return "loss" in self.rows

    @property
    def has_evaluation(self) -> bool:
        """Whether its lines have a value that is named for an evaluation."""
        return any(map(is_evaluation, self.rows.columns))

    @property
    def is_bar(self) -> bool:
        """Whether its lines are drawings of a bar."""
        return BAR_STEP in self.kind.fields


def candidates_of(
    kinds: Sequence[Kind], *, is_alone: bool = False, is_of_losses: bool = False
) -> list[Candidate]:
    """Return a candidate for every way to read each kind, with what stands beside it.

    A loss of any name is the loss of lines that stand alone. Numbers of unknown names are losses in
    a file that is called one of losses, if nothing is called a loss in it.
    """
    every = []
    details = [kind for kind in kinds if _SUMMARY not in kind.fields]
    names = {one.name for kind in details for one in kind.fields.values()}
    has_loss = any(is_loss(name) and not is_evaluation(name) for name in names)
    lines = sum(kind.count for kind in kinds)
    for kind in details if has_loss else kinds:
        if not has_loss and (is_of_losses or 2 * kind.count > lines):
            kind = _with_losses(kind, is_table=not is_of_losses)
        steps: list[str | None] = [*counted_steps(kind)] or [None]
        every += [_candidate(kind, step, is_alone=is_alone) for step in steps]
    return [replace(one, sides=_sides(one, every)) for one in every]


def _with_losses(kind: Kind, *, is_table: bool) -> Kind:
    """Return a kind in which numbers of unknown names are called losses: `G_GAN: 0.5`.

    Of a table without names it is the first number that falls as a loss does.
    """
    named = {key: one for key, one in kind.fields.items() if one.name}
    unknown = {
        key: f"{one.name} loss" for key, one in named.items()
        if key in kind.decimals and not meaning(one.name, one.unit)[0] and not is_table
        and not (is_evaluation(one.name) or key_of(one.name) == "data")
    }  # fmt: skip
    if not (unknown or (named and is_table) or BAR_STEP in kind.fields):
        others = [key for key in kind.fields if key not in named and key in kind.decimals]
        falling = [key for key in others if falls(kind.rows[key])]
        unknown = dict.fromkeys(falling[:1], UNNAMED)
    fields = {
        key: replace(one, name=unknown.get(key, one.name)) for key, one in kind.fields.items()
    }
    return replace(kind, fields=fields)


def _candidate(kind: Kind, step: str | None, *, is_alone: bool = False) -> Candidate:
    """Return a kind read with a step."""
    meanings = {key: one.meaning for key, one in kind.fields.items()}
    names = {column for column, _ in meanings.values()}
    has_axis = step is not None or bool(names & {"epoch", "images"})
    chosen, doubt = _columns(kind, meanings, step, is_whole=has_axis or is_alone)
    if step not in (None, EPOCH_OF_TIMM) and EPOCH_OF_TIMM in kind.fields:
        chosen.setdefault("epoch", EPOCH_OF_TIMM)
    columns = {name: kind.rows[name] for name in ("line", "place")}
    columns |= {column: kind.rows[key] * meanings[key][1] for column, key in chosen.items()}
    for column, key in (("of", step), ("epochs", chosen.get("epoch"))):
        if f"{key}/of" in kind.rows:
            columns[column] = kind.rows[f"{key}/of"]
    axis = "epoch" if "epoch" in chosen else "sample"
    if step is not None:
        columns["step"] = kind.rows[step]
        axis = axis_of(kind, step)
    times = ("step_s", "epoch_s", "elapsed_s", "duration_s")
    timed = {column: key for column, key in chosen.items() if column in times}
    if _SUMMARY in kind.fields:
        doubt = "may be the mean of the whole training"
    loss_name = kind.fields[chosen["loss"]].name if "loss" in chosen else ""
    uncertain = {"loss": doubt} if doubt else {}
    epoch = kind.fields[chosen["epoch"]].name if "epoch" in chosen else ""
    if step is None and "ep" in key_of(epoch).split():
        uncertain["step"] = "'ep' may count epochs, episodes or steps"
    if (step or chosen.get("images", "")) in kind.rounded:
        uncertain["step"] = "rounded to a few digits, not known exactly"
    if axis == "sample" and step is not None:
        uncertain["step"] = "a number without a name may count samples or steps"
    is_bare = step is not None and not kind.fields[step].name
    if axis == "step" and is_bare and loss_name == UNNAMED and columns["step"].max() < MANY:
        # So begin the tables of YOLO.
        uncertain["step"] = "a number without a name may count epochs or steps"
        columns["epoch"], axis, step = columns.pop("step"), "epoch", None
    for column in CLOCKS:
        if column in chosen and _has_two_parts(kind, chosen[column]):
            clock = "time" if column in ("day_s", "elapsed_s") else "printed"
            uncertain[clock] = "a clock of two parts: minutes and seconds, or hours and minutes"
    return Candidate(
        kind=kind,
        name="tqdm" if step == BAR_STEP else "key: value",
        rows=Rows(columns),
        axis=axis,
        has_step=step is not None,
        has_axis=has_axis,
        without_unit=frozenset(
            column for column, key in timed.items() if not kind.fields[key].has_unit
        ),
        rank=preference(kind.fields[step].name) if step is not None else 0,
        loss_name=loss_name,
        uncertain=uncertain,
    )


def _has_two_parts(kind: Kind, key: str) -> bool:
    """Whether a column has clocks such as `10:05`, none of them of more than a day."""
    if kind.fields[key].form != "clock" or np.nanmax(kind.rows[key], initial=0.0) >= DAY_MIN:
        return False
    places = [
        (shape.sample, shape.fields[key].place) for shape in kind.shapes if key in shape.fields
    ]
    return all(sample[begin:end].count(":") == 1 for sample, (begin, end) in places)


def _columns(
    kind: Kind, meanings: dict[str, tuple[str, float]], step: str | None, *, is_whole: bool
) -> tuple[dict[str, str], str | None]:
    """Return the key of the field for each column, and a doubt about the loss."""
    found: dict[str, str] = {}
    for key, one in kind.fields.items():
        column = meanings[key][0]
        is_place = column == "batch_number" and one.total is not None
        if key == step or is_place or column in ("", "step", "batch_idx"):
            continue
        is_preferred = (
            column == "loss"
            and column in found
            and (preference(one.name) < preference(kind.fields[found[column]].name))
        )
        if column not in found or is_preferred:
            found[column] = key
    names = {kind.fields[key].name: column for column, key in found.items()}
    if "loss" in found:
        names["loss"] = "loss"
    renamed, doubt = losses_by_other_names({n: kind.rows[found[c]] for n, c in names.items()})
    for name, column in renamed.items():
        if column != "loss" or is_whole:
            found[column] = found.pop(names[name])
    if "loss" in found:
        doubt = doubt or kind.doubt or _doubt_of_value(kind, found["loss"])
        if kind.fields[found["loss"]].name == UNNAMED:
            doubt = "a number without a name may be a loss: it falls as one does"
    return found, doubt if is_whole else None


def _doubt_of_value(kind: Kind, key: str) -> str | None:
    """Return why a line does not say which value one of its fields has, None if it does."""
    if key in kind.with_commas:
        return "two readings: the comma may be of thousands or of decimals"
    values, again = kind.rows[key], kind.rows[f"{key}/again"]
    if (values != again)[np.isfinite(values) & np.isfinite(again)].any():
        return f"two readings: a line has two values called {kind.fields[key].name!r}"
    return None


def _follows(one: Candidate, main: Candidate) -> bool:
    """Whether each line of a kind is the only one after its own of many others."""
    at = np.searchsorted(main.rows["place"], one.rows["place"])
    return bool(len(np.unique(at)) == len(at) and len(at) > MOST_FOLLOWED * main.kind.count)


def has_fractions(one: Candidate) -> bool:
    """Whether a candidate has losses that are no whole numbers, as that of `crf_loss/bias:0` is."""
    losses = one.rows["loss"]
    return bool(np.mod(losses[np.isfinite(losses)], 1).any())


def _only_loss(beside: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidate of a loss in lines that name no count, with a doubt, if there is one."""
    alone = [_candidate(one.kind, None, is_alone=True) for one in beside]
    losses = [one for one in alone if has_fractions(one) and one.kind.count > 1]
    if not losses:
        return []
    shown = losses[0]
    if losses[1:]:
        names = ", ".join(one.loss_name for one in losses[:4])
        doubt = f"two readings: {names}; none is called the whole, {shown.loss_name!r} is shown"
        shown = replace(shown, uncertain=shown.uncertain | {"loss": doubt})
    return [shown]


def _sides(main: Candidate, every: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return what stands beside the lines of a kind: the rest of its records, and evaluations."""
    found: list[Candidate] = []
    # A step may be named again where a checkpoint is saved.
    counts = main.kind.count, distinct(main.rows["step" if main.has_step else "epoch"])
    for one in every:
        if one.kind is main.kind or any(one.kind is other.kind for other in found):
            continue
        is_part = not one.has_axis or (one.axis == "sample" and main.axis == "step")
        is_of_record = is_part and any(
            abs(one.kind.count - count) <= max(AS_MANY * count, 1) for count in counts
        )
        is_of_bar = main.is_bar and one.has_loss and not one.has_step
        is_beside = is_of_bar or one.has_evaluation
        is_after = one.has_loss and is_part and _follows(one, main)
        is_clock = is_of_record and _CLOCKS_OF_RECORDS.isdisjoint(main.rows.columns)
        is_clock = is_clock and not _CLOCKS_OF_RECORDS.isdisjoint(one.rows.columns)
        if ((is_of_record or is_after) and not main.has_loss) or is_beside or is_clock:
            found.append(one)
    found.sort(key=lambda one: (not one.has_loss, not one.has_evaluation))
    if not main.has_loss and not any(one.has_loss for one in found):
        found = [*_only_loss(found), *found]
    return tuple(found[:MOST_SIDES])
