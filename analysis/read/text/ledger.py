"""Count the lines of a text log by what they are: metrics, events, known noise, or unknown."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from analysis.read.formats.text import FORMATS
from analysis.read.text.pieces import Piece
from analysis.read.text.scan import scan

_NOISE = re.compile(
    rb"^\s*$|INFO|WARN|[Ww]arning|DEBUG|^\s*[*=#_-]{3,}|it/s|s/it|B/s\]|%\||OMP_NUM_THREADS|"
    rb"NCCL|torchrun|[Ll]oad(?:ed|ing)|[Ss]av(?:ed|ing)|[Cc]heckpoint|[Dd]ownload|Epoch|epoch|"
    rb"[Pp]arameters|File \"|^\s+[\w^~ ]|:::MLL|srun:|slurm"
)
# A line with a step or a loss beside a number is a metric that nobody read.
_METRIC = re.compile(rb"(?i)(?:\bstep|\biter(?:ation)?|loss)s?[\"']?[ \t]*[:=][ \t]*\d")
LONGEST_SAMPLE, LONGEST_READ = 120, 1000


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The counts of one file's lines; they add up. `sample` is the first unknown one."""

    path: Path
    format: str | None
    lines: int
    metrics: int
    events: int
    noise: int
    unknown: int
    sample: str | None = None


def read_ledger(path: Path) -> Ledger:
    """Return the ledger of a text file; raise `Unreadable` if it is damaged."""
    counts, kinds, sample = Counter[str](), Counter[str](), b""
    for one in scan(path, FORMATS, whole=True):
        rows = {int(line) for found in one.rows.values() for line in found["line"]}
        events = {cause.line for cause in one.causes} - rows
        kinds.update({name: len(found) for name, found in one.rows.items()})
        others = _others(one.piece, rows | events)
        strange = [text for text in others if _METRIC.search(text) or not _NOISE.search(text)]
        sample = sample or next(iter(strange), b"")
        counts.update(
            metrics=len(rows),
            events=len(events),
            noise=len(others) - len(strange),
            unknown=len(strange),
        )
    return Ledger(
        path=path,
        format=next((known.name for known in FORMATS if known.name in kinds), None),
        lines=counts.total(),
        metrics=counts["metrics"],
        events=counts["events"],
        noise=counts["noise"],
        unknown=counts["unknown"],
        sample=sample[:LONGEST_SAMPLE].decode("utf-8", "replace").strip() or None,
    )


def _others(piece: Piece, known: set[int]) -> list[bytes]:
    """Return the lines of a piece that are neither metrics nor events, cut to `LONGEST_READ`."""
    bounds = np.concatenate([[0], piece.newlines + 1, [len(piece.text)]])
    return [
        piece.text[start : min(end, start + LONGEST_READ)]
        for number, (start, end) in enumerate(pairwise(bounds.tolist()), start=piece.line)
        if number not in known and start < end
    ]
