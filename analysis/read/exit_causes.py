"""Find how a job ended, as Slurm, torchrun, PyTorch and the trainers print it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.text.pieces import pieces
from runs.state.fold import end_in_line
from runs.state.reasons import names_a_cause

# Literal parts of the lines to look at: finding these is fast; the patterns of reasons.yaml read
# 3 MB/s.
_TOKENS = (
    "CANCELLED AT",
    "oom_kill", "oom-kill", "OOM Killed", "Out Of Memory", "xceeded job memory limit",
    "OutOfMemoryError", "CUDA out of memory", "CUDA error",
    "_STATUS_ALLOC_FAILED", "Triton Error", ") is killed by signal",
    "Watchdog caught collective", "NCCL error",
    "No space left on device", "Disk quota exceeded",
    "Root Cause (first observed", "ERROR:torch.distributed.elastic", "Exited with exit code ",
    "Traceback (most recent call last)",
    "Training completed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExitCause:
    """One line that says how an attempt ended; `place` as in `analysis.read.columns.Rows`."""

    event: str
    reason: str | None
    line: int
    place: int


def exit_causes(path: Path, *, after: int = 0) -> list[ExitCause]:
    """Return every such line of a text log from a place on, in order, each line once."""
    found: dict[int, ExitCause] = {}
    for piece in pieces(path, again_from=after):
        start = max(after - piece.offset, 0)
        for token in _TOKENS if start < len(piece.text) else ():
            if token not in piece.text:
                continue
            for match in re.compile(re.escape(token)).finditer(piece.text, start):
                line = int(piece.lines_at(np.array([match.start()]))[0])
                rest = piece.text[match.start() : match.start() + 300].partition("\n")[0]
                event, reason = end_in_line(rest)
                place = piece.offset + match.start()
                cause = ExitCause(event=event, reason=reason, line=line, place=place)
                found.setdefault(line, cause)
    return sorted(found.values(), key=lambda cause: cause.place)


def root_cause(causes: Sequence[ExitCause]) -> ExitCause | None:
    """Return the first cause that names a reason, else the first: the rest follows from it.

    An out-of-memory that was caught and skipped is followed by more steps, not by an end.
    """
    named = [cause for cause in causes if names_a_cause(cause.reason)]
    return next(iter(named or causes), None)
