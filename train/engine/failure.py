"""What ends a run badly: its reason, and the note that the first failing rank leaves."""

import contextlib
import errno
import json
import os
import re
import time
import traceback
from pathlib import Path

import torch

from configs.attempt.close import NODE_FAULT
from configs.errors import ConfigError, DataError
from configs.run.folder import node_name
from configs.run.records import REASONS

# What torch says where a file that it writes cannot grow; it hides the reason.
_CUT_SHORT = re.compile(r"inline_container\.cc.*unexpected pos|PytorchStreamWriter failed writing")


class RunFailure(RuntimeError):
    """An end whose reason is known."""

    def __init__(self, reason: str, message: str) -> None:
        assert reason in REASONS, reason
        super().__init__(message)
        self.reason = reason


def reason_of(error: BaseException) -> str:
    """The reason, one of `configs.run.records.REASONS`, that an exception stands for."""
    if isinstance(error, RunFailure):
        return error.reason
    if isinstance(error, ConfigError):
        return "config"
    if isinstance(error, DataError):
        return "data"
    if isinstance(error, torch.OutOfMemoryError):
        return "oom"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator: " in str(error):
        return "host_oom"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk"
    if isinstance(error, RuntimeError) and _CUT_SHORT.search(str(error)):
        return "disk"
    # Before NCCL's: where its collective fails for the GPU below it, the message tells.
    if isinstance(error, RuntimeError) and re.search(NODE_FAULT, str(error)):
        return "node"
    if isinstance(error, torch.distributed.DistError):
        return "nccl"
    chained = error.__cause__ or error.__context__
    return reason_of(chained) if chained is not None else "crash"


def leave_note(attempt: Path, error: BaseException, *, rank: int, node: str | None = None) -> None:
    """Write `error.json` in the attempt, unless a rank failed before: the first is the cause.

    `rank` is the one that failed, on `node` (this one where it is None).
    """
    note = {
        "time": time.time(),
        "rank": rank,
        "node": node or node_name(),
        "reason": reason_of(error),
        "message": str(error) or type(error).__name__,
        "traceback": "".join(traceback.format_exception(error)),
    }
    with contextlib.suppress(OSError):
        handle = os.open(attempt / "error.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(note, file, indent=1)
