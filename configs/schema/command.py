"""A run of somebody's own batch script: its text, its arguments and what is varied in it."""

from typing import Any, Literal

from configs.schema.key import key
from configs.schema.run import Run


class Command(Run):
    """A batch script, as `ditbench submit SCRIPT` writes it down (docs/own-script.md)."""

    kind: Literal["command"] = key("command", "kind of run")
    script: str | None = key(None, "path of the batch script")
    script_digest: str | None = key(None, "digest of its text", "loss clock")
    run: str = key("", "arguments of the script", "loss clock")
    params: dict[str, Any] = key({}, "values that are varied", "loss clock")
    folder: str | None = key(None, "folder in which it was submitted")
    resume: str | None = key(None, "flags of later attempts, with {newest:PATTERN}", free=True)
    signal: Literal["USR1", "USR2", "TERM"] | None = key(
        None, "signal that Slurm sends the script near the time limit", free=True
    )
