"""How a job ended, as Slurm, torchrun, PyTorch and the trainers say it in its output."""

from dataclasses import dataclass

from analysis.read.text.chunks import Chunk

# A token, what the rest of its line must match, the event, and a failure's reason. Of several
# that match one line the first counts.
_KINDS: tuple[tuple[bytes, bytes, str, str | None], ...] = (
    (b"CANCELLED AT", b"DUE TO TIME LIMIT", "failed", "timeout"),
    (b"CANCELLED AT", b"DUE TO PREEMPTION", "failed", "preempted"),
    (b"CANCELLED AT", b"DUE TO NODE FAILURE", "failed", "node"),
    (b"CANCELLED AT", b"DUE TO JOB REQUEUE", "paused", None),
    (b"CANCELLED AT", b"", "stopped", None),
    (b"oom_kill", b"", "failed", "host_oom"),
    (b"OOM Killed", b"", "failed", "host_oom"),
    (b"OutOfMemoryError", b"", "failed", "oom"),
    (b"CUDA out of memory", b"", "failed", "oom"),
    (b"Watchdog caught collective", b"", "failed", "hang"),
    (b"NCCL error", b"", "failed", "nccl"),
    (b"No space left on device", b"", "failed", "disk"),
    (b"Disk quota exceeded", b"", "failed", "disk"),
    (b"Root Cause (first observed", b"", "failed", "crash"),
    (b"ERROR:torch.distributed.elastic", b"", "failed", "crash"),
    (b"Exited with exit code ", b"", "failed", "crash"),
    (b"Traceback (most recent call last)", b"", "failed", "crash"),
    (b"Training completed", b"", "done", None),
)
_TOKENS = tuple(dict.fromkeys(token for token, _, _, _ in _KINDS))


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
    after = text.partition(b"\n")[0]
    event, reason = next(
        (event, reason) for known, rest, event, reason in _KINDS if known == token and rest in after
    )
    return Ending(event=event, reason=reason, line=line, place=place)


def root_cause(told: list[Ending]) -> Ending | None:
    """Of what an attempt says at its end, the first that names a cause: the rest follows from it.

    An out-of-memory that was caught and skipped is followed by more steps, not by an end.
    """
    named = [ending for ending in told if ending.reason not in (None, "crash")]
    return next(iter(named or told), None)
