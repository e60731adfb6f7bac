"""Reads a text log of any format that is known: the first format with rows is the file's."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analysis.read.assemble import assemble, join, main_group, select
from analysis.read.bars import BARS
from analysis.read.batch import Batch, Format
from analysis.read.chunks import Chunk, chunks
from analysis.read.dit import DIT
from analysis.read.endings import Ending, endings
from analysis.read.iterations import MEGATRON, NANO_GPT
from analysis.read.log import RunLog
from analysis.read.mllog import MLLOG, read_header
from analysis.read.titan import TITAN
from analysis.read.trainer import TRAINER

# In the order of trust: bars last, since they also show downloads and sampling.
FORMATS: tuple[Format, ...] = (MLLOG, TITAN, DIT, MEGATRON, NANO_GPT, TRAINER, BARS)


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What one piece of a file holds: rows by format, and lines on how a job ended."""

    chunk: Chunk
    rows: dict[str, Batch]
    told: list[Ending]


def scan(path: Path, *, whole: bool = False) -> Iterator[Scanned]:
    """The file piece by piece, with every format's rows.

    How a job ended is looked for where it can count, unless `whole` is asked for: after the last
    row, and in pieces where a step falls.
    """
    collecting = gc.isenabled()
    # Matches by the hundred thousand, none in a cycle: the collector would take two thirds of the
    # time to find that out.
    gc.disable()
    try:
        for chunk in chunks(path):
            found = {known.name: known.rows(chunk) for known in FORMATS}
            rows = {name: batch for name, batch in found.items() if batch is not None}
            start = 0 if whole else _last_row(chunk, rows)
            yield Scanned(chunk=chunk, rows=rows, told=endings(chunk, start=start))
    finally:
        if collecting:
            gc.enable()


def _last_row(chunk: Chunk, rows: dict[str, Batch]) -> int:
    """Where the last row of a piece begins; 0 where an attempt may have ended before it."""
    if not rows or any((np.diff(batch.step) < 0).any() for batch in rows.values()):
        return 0
    return min(int(batch.place[-1]) for batch in rows.values()) - chunk.offset


def read_text(path: Path, *, name: str) -> list[RunLog]:
    """The runs in a text file; none where no format is known."""
    found: dict[str, list[Batch]] = {}
    told: list[Ending] = []
    for piece in scan(path):
        told += piece.told
        for kind, batch in piece.rows.items():
            found.setdefault(kind, []).append(batch)
    rows = {kind: join(batches) for kind, batches in found.items()}
    known = next((known for known in FORMATS if _is_run(rows.get(known.name))), None)
    if known is None:
        return []
    batch, remarks = rows[known.name], tuple[str, ...]()
    if known is TRAINER and not (batch.step > 0).any():
        batch, remarks = _with_steps(batch, rows.get(BARS.name))
    logs = assemble(batch, told, path=path, name=name, kind=known.name)
    if known is MLLOG and len(logs) == 1:
        facts, events = read_header(path)
        logs = [replace(logs[0], facts=facts, events=(*events, *logs[0].events))]
    return [_remarked(log, remarks) for log in logs]


def _is_run(rows: Batch | None) -> bool:
    """Whether rows can be a training: a loss, or a bar of some length."""
    if rows is None:
        return False
    return "loss" in rows.values or len(np.unique(rows.step)) >= 3


def _with_steps(rows: Batch, bars: Batch | None) -> tuple[Batch, tuple[str, ...]]:
    """The Trainer's rows with the step and clock of the bar before each, else counted."""
    loss = rows.values.get("loss", np.full(len(rows), np.nan))
    rows = select(rows, np.flatnonzero(~np.isnan(loss)))
    if bars is None:
        counted = replace(rows, step=np.arange(1, len(rows) + 1))
        return counted, ("the log names no steps: losses are counted instead",)
    bars = main_group(bars)
    before = np.maximum(np.searchsorted(bars.place, rows.place) - 1, 0)
    values = rows.values | {"bar_s": bars.values["bar_s"][before]}
    stepped = replace(rows, step=bars.step[before], values=values)
    return stepped, ("steps and clock are those of the bar before each loss",)


def _remarked(log: RunLog, remarks: tuple[str, ...]) -> RunLog:
    return replace(log, remarks=(*(f"{log.name}: {remark}" for remark in remarks), *log.remarks))
