"""Failures of a run: their reasons, and the `error.json` of the first rank that fails."""

import contextlib
import json
import os
import time
import traceback
from pathlib import Path

import torch

from configs.errors import ConfigError, DataError
from runs.slurm_env import node_name
from runs.state.reasons import failures, find_reason, is_disk_full
from train.engine.metrics import log


class RunFailure(RuntimeError):
    """A failure with a known reason, one of `runs.state.reasons.failures`."""

    def __init__(self, reason: str, message: str) -> None:
        assert reason in failures(), reason
        super().__init__(message)
        self.reason = reason


def reason_of(error: BaseException) -> str:
    """Return the reason, one of `runs.state.reasons.failures`, of an exception."""
    if isinstance(error, RunFailure):
        return error.reason
    if isinstance(error, ConfigError):
        return "config"
    if isinstance(error, DataError):
        return "data"
    if isinstance(error, torch.OutOfMemoryError):
        return "oom"
    if isinstance(error, MemoryError):
        return "host_oom"
    if isinstance(error, OSError) and is_disk_full(error):
        return "disk"
    if isinstance(error, torch.distributed.DistError):
        # A collective also fails if a GPU below it breaks down or is full; the message says so.
        return find_reason(str(error), among=["oom", "node"]) or "nccl"
    if isinstance(error, RuntimeError):
        reason = find_reason(str(error), among=["config", "oom", "host_oom", "disk", "node"])
        if reason is not None:
            return reason
    chained = error.__cause__ or error.__context__
    return reason_of(chained) if chained is not None else "crash"


def write_error(attempt: Path, error: BaseException, *, rank: int, node: str | None = None) -> None:
    """Write `error.json` in the attempt, unless a rank has failed before: the first is the cause.

    `rank` failed on `node`, None: on this one. If its GPU is full, the use of the memory is logged.
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
    if note["reason"] == "oom" and torch.cuda.is_initialized():
        log.error("the memory of this rank's GPU:\n%s", torch.cuda.memory_summary())
