"""How a job ended, as Slurm, torchrun, PyTorch and the trainers say it in its output."""

from dataclasses import dataclass

from analysis.read.text.chunks import Chunk
from configs.run.failures import FAILURES, find_reason

# Literal parts of the lines that are looked at: to find these is fast, where the patterns of
# FAILURES read 3 MB/s.
_TOKENS = (
    b"CANCELLED AT",
    b"oom_kill", b"oom-kill", b"OOM Killed", b"Out Of Memory", b"xceeded job memory limit",
    b"OutOfMemoryError", b"CUDA out of memory", b"CUDA error",
    b"Watchdog caught collective", b"NCCL error",
    b"No space left on device", b"Disk quota exceeded",
    b"Root Cause (first observed", b"ERROR:torch.distributed.elastic", b"Exited with exit code ",
    b"Traceback (most recent call last)",
    b"Training completed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ending:
    """One line that says how an attempt ended."""

    event: str
    reason: str | None
    line: int
    place: int


def endings(chunk: Chunk) -> list[Ending]:
    """Every such line of a piece, in order, each line once."""
    clean = chunk.clean()
    found: dict[int, Ending] = {}
    for token in _TOKENS:
        place = clean.data.find(token)
        while place >= 0:
            line = int(clean.newlines.searchsorted(place))
            begun = int(clean.newlines[line - 1]) + 1 if line else 0
            # Terminal codes take places in the file: a line's own are counted from its beginning.
            began = int(chunk.newlines[line - 1]) + 1 if line else 0
            found.setdefault(
                line,
                _ending(
                    clean.data[place : place + 300],
                    token,
                    line=chunk.line + line,
                    place=chunk.offset + began + place - begun,
                ),
            )
            place = clean.data.find(token, place + len(token))
    return sorted(found.values(), key=lambda ending: ending.place)


def _ending(text: bytes, token: bytes, *, line: int, place: int) -> Ending:
    after = text.partition(b"\n")[0].decode(errors="replace")
    event, reason = "failed", find_reason(after, among=FAILURES)
    if token == b"Training completed":
        event, reason = "done", None
    elif token == b"CANCELLED AT" and reason is None:
        event = "paused" if "DUE TO JOB REQUEUE" in after else "stopped"
    elif reason is None:
        reason = "crash"
    return Ending(event=event, reason=reason, line=line, place=place)


def root_cause(told: list[Ending]) -> Ending | None:
    """Of what an attempt says at its end, the first that names a cause: the rest follows from it.

    An out-of-memory that was caught and skipped is followed by more steps, not by an end.
    """
    named = [ending for ending in told if ending.reason not in (None, "crash")]
    return next(iter(named or told), None)
