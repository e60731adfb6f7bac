"""Reasons of failure: what each means, how output shows it, and whether another attempt can pass.

The one table of them: ranks, closing, requeueing, `launch why` and the log readers all use it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FailureReason:
    """One reason of failure.

    `slurm` and `output` are regular expressions for one line: of a message by Slurm, and of the
    output of ranks. Empty means that no line shows this reason. `can_pass` says whether another
    attempt, with nothing changed, may succeed.
    """

    meaning: str
    can_pass: bool
    slurm: str = ""
    output: str = ""

    @property
    def pattern(self) -> str:
        """The regular expression for a line by Slurm or by a rank."""
        return "|".join(filter(None, (self.slurm, self.output)))


# The first reason whose pattern matches is the cause; later ones can follow from it.
FAILURES = {
    "config": FailureReason(meaning="the config cannot run", can_pass=False),
    "oom": FailureReason(
        meaning="a GPU ran out of memory",
        can_pass=False,
        output=r"CUDA out of memory|OutOfMemoryError|OOM during training step"
        r"|CUDNN_STATUS_ALLOC_FAILED",
    ),
    "host_oom": FailureReason(
        meaning="the job ran out of host memory",
        can_pass=False,
        # By Slurm's own accounting, or by a cgroup.
        slurm=r"oom[-_ ]kill|OOM Killed|Out Of Memory|Exceeded job memory limit"
        r"|exceeded memory limit",
        output=r"DefaultCPUAllocator: |Cannot allocate memory|(?<!OutOf)MemoryError",
    ),
    "disk": FailureReason(
        meaning="a disk or a quota is full",
        can_pass=False,
        # The last two are torch's messages for a write that was cut short; they hide the cause.
        output=r"No space left on device|Disk quota exceeded|\[Errno (28|122)\]"
        r"|database or disk is full"
        r"|inline_container\.cc.*unexpected pos|PytorchStreamWriter failed writing",
    ),
    "node": FailureReason(
        meaning="a GPU or a node broke down",
        can_pass=True,
        slurm=r"DUE TO NODE[ _]FAIL",
        # Messages of CUDA and of the driver for a GPU that has failed: the same run works on
        # another node.
        output=r"uncorrectable ECC error|uncorrectable NVLink error|double[- ]bit ECC"
        r"|fallen off the bus|NVRM: Xid|\bXid \("
        r"|CUDA error: (hardware|unspecified launch failure|unknown error|device unavailable"
        r"|an illegal instruction)"
        r"|CUDA-capable device\(s\) is/are busy or unavailable|no CUDA-capable device is detected"
        r"|CUDA unknown error|system not yet initialized|CUDA driver initialization failed"
        r"|Unable to determine the device handle",
    ),
    "nan": FailureReason(
        meaning="the loss or its gradient was not finite",
        can_pass=False,
        output=r"[Ll]oss is (nan|NaN|NAN)",
    ),
    "data": FailureReason(
        meaning="the data cannot be read",
        can_pass=False,
        output=r"DataLoader worker \(pid.*(Bus error|killed by signal)|UnidentifiedImageError"
        r"|cannot identify image file|image file is truncated",
    ),
    "timeout": FailureReason(
        meaning="the job reached its time limit, or attempts made no progress",
        can_pass=True,
        slurm=r"DUE TO TIME LIMIT",
    ),
    "preempted": FailureReason(
        meaning="the job had to make way for another", can_pass=True, slurm=r"DUE TO PREEMPTION"
    ),
    "hang": FailureReason(
        meaning="ranks waited for one that did not come",
        can_pass=True,
        output=r"Watchdog caught collective|collective operation timeout"
        r"|Timed out waiting \d+ms for (recv|send)|Wait timeout|Heartbeat monitor timed out",
    ),
    "nccl": FailureReason(
        meaning="ranks lost one another",
        can_pass=True,
        output=r"Connection (reset|closed) by peer|ncclRemoteError|ncclSystemError|NCCL error"
        r"|Broken pipe.*gloo|DistBackendError|remote process exited|Socket Timeout"
        r"|Connection refused",
    ),
    "crash": FailureReason(meaning="an unexpected exception", can_pass=True),
}


def find_reason(text: str, *, among: Iterable[str]) -> str | None:
    """Return the first of the reasons `among` whose pattern is found in `text`."""
    for reason in among:
        pattern = FAILURES[reason].pattern
        if pattern and re.search(pattern, text):
            return reason
    return None
