"""What became of each line that was read: a metric, an event, known noise, or unknown."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from analysis.read.formats.mllog import HEADER
from analysis.read.text.chunks import Chunk
from analysis.read.text.scan import FORMATS, scan

_NOISE = re.compile(
    rb"^\s*$|INFO|WARN|[Ww]arning|DEBUG|^\s*[*=#_-]{3,}|it/s|s/it|B/s\]|%\||OMP_NUM_THREADS|"
    rb"NCCL|torchrun|[Ll]oad(?:ed|ing)|[Ss]av(?:ed|ing)|[Cc]heckpoint|[Dd]ownload|Epoch|epoch|"
    rb"[Pp]arameters|File \"|^\s+[\w^~ ]|:::MLL|srun:|slurm"
)
LONGEST_SAMPLE, LONGEST_READ = 120, 1000


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Counts of one file's lines; they add up. `sample` is the first unknown one."""

    path: Path
    format: str | None
    lines: int
    metrics: int
    events: int
    noise: int
    unknown: int
    sample: str | None = None


def read_ledger(path: Path) -> Ledger:
    """The ledger of a text file; `Unreadable` where it is damaged."""
    lines = metrics = events = noise = unknown = 0
    sample, kinds = b"", Counter[str]()
    for piece in scan(path, whole=True):
        found = {kind: batch for kind, batch in piece.rows.items() if kind != HEADER.name}
        rows = {number for batch in found.values() for number in batch.line.tolist()}
        told = {ending.line for ending in piece.told} - rows
        kinds.update({kind: len(batch) for kind, batch in found.items()})
        others = _others(piece.chunk.clean(), rows | told)
        strange = [text for text in others if not _NOISE.search(text)]
        sample = sample or next(iter(strange), b"")
        lines += len(rows) + len(told) + len(others)
        metrics, events = metrics + len(rows), events + len(told)
        noise, unknown = noise + len(others) - len(strange), unknown + len(strange)
    return Ledger(
        path=path,
        format=next((known.name for known in FORMATS if known.name in kinds), None),
        lines=lines,
        metrics=metrics,
        events=events,
        noise=noise,
        unknown=unknown,
        sample=sample[:LONGEST_SAMPLE].decode("utf-8", "replace").strip() or None,
    )


def _others(chunk: Chunk, known: set[int]) -> list[bytes]:
    """The lines of a piece that are neither metrics nor events, cut to `LONGEST_READ`."""
    bounds = np.concatenate([[0], chunk.newlines + 1, [len(chunk.data)]])
    full = bounds[:-1] < bounds[1:]
    return [
        chunk.data[start : min(end, start + LONGEST_READ)]
        for number, (start, end) in enumerate(pairwise(bounds.tolist()), start=chunk.line)
        if number not in known and full[number - chunk.line]
    ]
