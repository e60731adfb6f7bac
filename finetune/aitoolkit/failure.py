"""Why ai-toolkit left: its reason, one of `configs.run.records.REASONS`, and its own words."""

import re
import signal

from train.engine.failure import RunFailure

_SIGNS = (
    (re.compile(r"CUDA out of memory|OutOfMemoryError|OOM during training step"), "oom"),
    (re.compile(r"DefaultCPUAllocator|Cannot allocate memory|MemoryError"), "host_oom"),
    (re.compile(r"No space left on device|Disk quota exceeded|database or disk is full"), "disk"),
    (re.compile(r"loss is nan|Loss is NaN", re.IGNORECASE), "nan"),
    (re.compile(r"cannot identify image file|UnidentifiedImageError|image file is truncated"),
     "data"),
)  # fmt: skip
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|Error running job: .*)$", re.M)


def failure(status: int, *, info: str, words: str) -> RunFailure:
    """What ended it, from its exit `status`, what its table said last, and its last `words`."""
    if status == -signal.SIGKILL:
        return RunFailure("host_oom", "ai-toolkit was killed, most often for want of host memory")
    told = _ERROR.findall(words)
    # Its table has the text of an exception alone; the trace ends with its name, too.
    message = (told[-1] if told else info) or f"it left with status {status}"
    text = "\n".join([info, message, *told])
    reason = next((reason for sign, reason in _SIGNS if sign.search(text)), "crash")
    return RunFailure(reason, f"ai-toolkit: {message}")
