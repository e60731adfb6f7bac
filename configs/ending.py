"""What ended an attempt whose ranks wrote no last event: by their note, or by what Slurm said."""

import json
import re
from pathlib import Path
from typing import Any

# Slurm's words where ranks took more memory than their job has: by its own count, by a cgroup.
HOST_OOM = r"oom[-_ ]kill|Exceeded job memory limit|exceeded memory limit"

# The last words of a step stand at the end of its output.
_MOST_BYTES = 2**16


def cause(attempt: Path, *, status: int) -> dict[str, Any]:
    """Reason, message, rank and node of the first failing rank, as far as there is word of it.

    `status` is what the agents left with.
    """
    note = _error_note(attempt)
    told = {name: note.get(name) for name in ("reason", "message", "rank", "node")}
    # A rank that is killed for its memory leaves no note; its peers may note that they lost it.
    if told["reason"] in (None, "nccl") and (killing := _memory_killing(attempt)):
        return {"reason": "host_oom", "message": killing}
    return told | {
        "reason": told["reason"] or "crash",
        "message": told["message"] or f"the ranks left with status {status} and said nothing",
    }


def _error_note(attempt: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((attempt / "error.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _memory_killing(attempt: Path) -> str | None:
    """The line that tells of ranks killed for the host memory they took."""
    try:
        with (attempt / "output.log").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    found = (line.strip() for line in lines if re.search(HOST_OOM, line))
    return next(found, None)
