"""Find how a job ended, as Slurm, torchrun, PyTorch and the trainers print it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.read.text.pieces import Piece
from configs.run.failures import failures, find_reason

# Literal parts of the lines to look at: finding these is fast; the patterns of failures.yaml read
# 3 MB/s.
_TOKENS = (
    b"CANCELLED AT",
    b"oom_kill", b"oom-kill", b"OOM Killed", b"Out Of Memory", b"xceeded job memory limit",
    b"OutOfMemoryError", b"CUDA out of memory", b"CUDA error",
    b"_STATUS_ALLOC_FAILED", b"Triton Error", b") is killed by signal",
    b"Watchdog caught collective", b"NCCL error",
    b"No space left on device", b"Disk quota exceeded",
    b"Root Cause (first observed", b"ERROR:torch.distributed.elastic", b"Exited with exit code ",
    b"Traceback (most recent call last)",
    b"Training completed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExitCause:
    """One line that says how an attempt ended."""

    event: str
    reason: str | None
    line: int
    place: int


def exit_causes(piece: Piece, start: int) -> list[ExitCause]:
    """Return every such line of a piece from a place on, in order, each line once."""
    found: dict[int, ExitCause] = {}
    for token in _TOKENS:
        place = piece.text.find(token, piece.start_of_line(start))
        while place >= 0:
            line = int(piece.lines_at(np.array([place]))[0])
            if line not in found:
                found[line] = _cause(piece, token, line=line, place=place)
            place = piece.text.find(token, place + len(token))
    return sorted(found.values(), key=lambda cause: cause.place)


def _cause(piece: Piece, token: bytes, *, line: int, place: int) -> ExitCause:
    rest = piece.text[place : place + 300].partition(b"\n")[0].decode(errors="replace")
    event, reason = "failed", find_reason(rest, among=failures())
    if token == b"Training completed":
        event, reason = "done", None
    elif token == b"CANCELLED AT" and reason is None:
        event = "paused" if "DUE TO JOB REQUEUE" in rest else "stopped"
    elif reason is None:
        reason = "crash"
    return ExitCause(event=event, reason=reason, line=line, place=piece.offset + place)


def root_cause(causes: Sequence[ExitCause]) -> ExitCause | None:
    """Return the first cause that names a reason, else the first: the rest follows from it.

    An out-of-memory that was caught and skipped is followed by more steps, not by an end.
    """
    named = [cause for cause in causes if cause.reason not in (None, "crash")]
    return next(iter(named or causes), None)
