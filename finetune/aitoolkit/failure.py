"""Why ai-toolkit left: its reason, one of `configs.run.failures.FAILURES`, and its own words."""

import re
import signal

from configs.run.failures import find_reason
from train.engine.failure import RunFailure

_REASONS = ("oom", "host_oom", "disk", "node", "nan", "data")
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|Error running job: .*)$", re.M)


def failure(status: int, *, info: str, words: str) -> RunFailure:
    """What ended it, from its exit `status`, what its table said last, and its last `words`."""
    if status == -signal.SIGKILL:
        return RunFailure("host_oom", "ai-toolkit was killed, most often for want of host memory")
    told = _ERROR.findall(words)
    # Its table has the text of an exception alone; the trace ends with its name, too.
    message = (told[-1] if told else info) or f"it left with status {status}"
    text = "\n".join([info, message, *told])
    return RunFailure(find_reason(text, among=_REASONS) or "crash", f"ai-toolkit: {message}")
