"""Reads a text log of any format that is known: the first format with rows is the file's."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analysis.read.assemble import assemble, main_group
from analysis.read.exit_causes import Ending, endings
from analysis.read.formats.bars import BARS
from analysis.read.formats.composer import BATCHES, COMPOSER, with_batches
from analysis.read.formats.dit import DIT
from analysis.read.formats.iterations import MEGATRON, NANO_GPT
from analysis.read.formats.mllog import HEADER, MLLOG, read_header
from analysis.read.formats.titan import TITAN
from analysis.read.formats.trainer import TRAINER
from analysis.read.run_log import RunLog
from analysis.read.text.batch import Format, RowBatch, join, select
from analysis.read.text.chunks import Chunk, chunks
from analysis.read.text.rows import rows

# In the order of trust: bars last, since they also show downloads and sampling.
FORMATS: tuple[Format, ...] = (
    HEADER,
    MLLOG,
    TITAN,
    DIT,
    MEGATRON,
    NANO_GPT,
    COMPOSER,
    TRAINER,
    BARS,
    BATCHES,
)
# Formats whose rows name no step of their own, and the one that has it.
STEPS_FROM = {COMPOSER.name: BATCHES, TRAINER.name: BARS}


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What one piece of a file holds: rows by format, and lines on how a job ended."""

    chunk: Chunk
    rows: dict[str, RowBatch]
    told: list[Ending]


def scan(path: Path, *, whole: bool = False) -> Iterator[Scanned]:
    """The file piece by piece, with its rows.

    Unless `whole` is asked for, formats less trusted than one whose losses have been found are
    passed over, and how a job ended is looked for where it can count: after the last row, and in
    pieces where a step falls.
    """
    formats = FORMATS
    for chunk in chunks(path):
        found = rows(chunk, formats)
        start = 0 if whole else _last_row(chunk, found)
        yield Scanned(chunk=chunk, rows=found, told=endings(chunk.after(start)))
        if not whole:
            formats = _still_of_use(formats, found)


def _still_of_use(formats: tuple[Format, ...], found: dict[str, RowBatch]) -> tuple[Format, ...]:
    """The formats up to the first with losses, and the one that it has its steps from."""
    for number, known in enumerate(formats, start=1):
        if known.name in found and "loss" in found[known.name].values:
            more = (STEPS_FROM[known.name],) if known.name in STEPS_FROM else ()
            return (*formats[:number], *more)
    return formats


def _last_row(chunk: Chunk, found: dict[str, RowBatch]) -> int:
    """Where the last row of a piece begins; 0 where an attempt may have ended before it."""
    if not found or any((np.diff(batch.step) < 0).any() for batch in found.values()):
        return 0
    return min(int(batch.place[-1]) for batch in found.values()) - chunk.offset


def read_text(path: Path, *, name: str) -> list[RunLog]:
    """The runs in a text file; none where no format is known."""
    found: dict[str, list[RowBatch]] = {}
    told: list[Ending] = []
    for piece in scan(path):
        told += piece.told
        for kind, batch in piece.rows.items():
            found.setdefault(kind, []).append(batch)
    read = {kind: join(batches) for kind, batches in found.items()}
    header = read.pop(HEADER.name, None)
    batches, composed = read.pop(BATCHES.name, None), read.pop(COMPOSER.name, None)
    stepped = with_batches(composed, batches) if composed is not None else None
    read |= {COMPOSER.name: stepped} if stepped is not None else {}
    known = next((known for known in FORMATS if _is_run(read.get(known.name))), None)
    if known is None:
        return []
    batch, remarks = read[known.name], tuple[str, ...]()
    if known is TRAINER and not (batch.step > 0).any():
        batch, remarks = _with_steps(batch, read.get(BARS.name))
    logs = assemble(batch, told, path=path, name=name, kind=known.name)
    if known is MLLOG and len(logs) == 1 and header is not None:
        facts, events = read_header(path, header.line)
        logs = [replace(logs[0], facts=facts, events=(*events, *logs[0].events))]
    return [_remarked(log, remarks) for log in logs]


def _is_run(found: RowBatch | None) -> bool:
    """Whether rows can be a training: a loss, or a bar of some length."""
    if found is None:
        return False
    return "loss" in found.values or len(np.unique(found.step)) >= 3


def _with_steps(found: RowBatch, bars: RowBatch | None) -> tuple[RowBatch, tuple[str, ...]]:
    """The Trainer's rows with the step and clock of the bar before each, else counted."""
    loss = found.values.get("loss", np.full(len(found), np.nan))
    found = select(found, np.flatnonzero(~np.isnan(loss)))
    if bars is None:
        counted = replace(found, step=np.arange(1, len(found) + 1))
        return counted, ("the log names no steps: losses are counted instead",)
    bars = main_group(bars)
    before = np.maximum(np.searchsorted(bars.place, found.place) - 1, 0)
    values = found.values | {"bar_s": bars.values["bar_s"][before]}
    stepped = replace(found, step=bars.step[before], values=values)
    return stepped, ("steps and clock are those of the bar before each loss",)


def _remarked(log: RunLog, remarks: tuple[str, ...]) -> RunLog:
    return replace(log, remarks=(*(f"{log.name}: {remark}" for remark in remarks), *log.remarks))
