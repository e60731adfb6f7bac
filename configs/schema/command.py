"""A run of anybody's own program: its command, its parameters, its files and its log."""

import re
import shlex
from typing import Any, Literal

from pydantic import Field, model_validator

from configs.schema.key import KeyGroup, key
from configs.schema.run import Run

# Names that a command may use besides its parameters.
GIVEN = ("output", "seed", "gpus", "nodes")
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")
_SHELL_WORD = re.compile(r"[|&;<>]+|\d*>.*|[^'\"]*;|~/.*|[^'\"]*\*.*|[^']*(\$[\w({]|`).*")


class ProgramLog(KeyGroup):
    """The log that `analysis` reads; see docs/log-formats.md."""

    file: str | None = key(
        None, "name or glob of a log in {output}; null: what the program prints", free=True
    )
    pattern: str | None = key(None, "regular expression for a line, as --pattern", free=True)
    columns: dict[str, str] = key({}, "names of columns by ours, as --columns", free=True)


class Command(Run):
    """Run a program of your own: one process on the first node (docs/own-script.md).

    A command is split into words like a shell does, then each `{name}` in a word is replaced: no
    shell reads the values.
    """

    kind: Literal["command"] = key("command", "kind of run")
    run: str = key("", "command; {output}, {seed}, {gpus}, {nodes}, {PARAM}", "loss clock")
    resume: str | None = key(
        None, "command of later attempts, once the files of {output} that it names exist", free=True
    )
    params: dict[str, Any] = key({}, "values of the command's {PARAM}", "loss clock")
    script: str | None = key(
        None, "batch script, run as it is by `ditbench submit SCRIPT`; `run` are its arguments"
    )
    script_digest: str | None = key(None, "digest of the script's text", "loss clock")
    folder: str | None = key(None, "folder of the program; null: that of the YAML", path="folder")
    files: list[str] = key([], "files and folders that it needs; empty: its git repository")
    setup: list[str] = key([], "lines of bash before the command: modules, virtualenv", "clock")
    signal: Literal["USR1", "USR2", "TERM"] | None = key(
        None, "signal near the time limit; null: TERM if there is a resume, else none", free=True
    )
    requeue_code: int | None = key(
        None, "exit status by which the program asks to be requeued", free=True, ge=1, le=127
    )
    log: ProgramLog = Field(default_factory=ProgramLog)  # type: ignore[assignment]

    def words(self, command: str, output: str) -> list[str]:
        """Return the words of a command, with the values in their places."""
        resources = self.resources
        given = (output, self.seed, resources.gpus_per_node, resources.nodes)
        values = dict(zip(GIVEN, given, strict=True)) | self.params
        return [
            _PLACEHOLDER.sub(lambda found: _text(found, values), word)
            for word in shlex.split(command)
        ]

    @model_validator(mode="after")
    def _parts_fit(self) -> "Command":
        if not self.run.strip() and self.script is None:
            raise ValueError("run: name the command, such as: python train.py --lr {lr}")
        for name, value in self.params.items():
            if name in GIVEN or not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise ValueError(f"params.{name}: not a name of a parameter; choose another")
            if not isinstance(value, str | int | float):
                raise ValueError(f"params.{name}: expected one value: text or a number")
        if self.script is not None:
            return self
        used = self._names("run", self.run)
        if self.resume is not None:
            self._names("resume", self.resume)
        seed = ["seed"] if self.seed else []
        for name in [*self.params, *seed]:
            if name not in used:
                shown = name if name == "seed" else f"params.{name}"
                raise ValueError(f"{shown}: the command does not use it; write {{{name}}} in run")
        return self

    def _names(self, key_name: str, command: str) -> set[str]:
        """Return the names that a command uses; refuse an unknown one, and shell syntax."""
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"{key_name}: {error}; quote it as in a shell") from None
        shell = [word for word in shlex.split(command, posix=False) if _SHELL_WORD.fullmatch(word)]
        if "=" in words[0]:
            shell = [words[0]]
        if shell:
            raise ValueError(
                f"{key_name}: {shell[0]}: no shell reads the command; write a script and "
                "run: bash my.sh {lr}"
            )
        used = {found[2] for word in words for found in _PLACEHOLDER.finditer(word) if found[2]}
        unknown = sorted(used - {*GIVEN, *self.params})
        if unknown:
            known = ", ".join([*self.params, *GIVEN])
            raise ValueError(
                f"{key_name}: {{{unknown[0]}}} is none of {known}; add it to params, or write "
                f"{{{{{unknown[0]}}}}} for the braces themselves"
            )
        return used


def _text(found: re.Match[str], values: dict[str, Any]) -> str:
    if found[1]:
        return f"{{{found[1]}}}"
    value = values[found[2]]
    return str(value).lower() if isinstance(value, bool) else str(value)
