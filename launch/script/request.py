"""The request of a user who submits a batch script: its text, flags, and varied values."""

import hashlib
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.files import read_bytes
from configs.load import resolve
from configs.schema import Command
from configs.schema.command import GIVEN
from launch.lint.script import Script, parse_script
from launch.script.directives import resources_of, sbatch_options, signal_of
from launch.script.edit import present_value, seed_name
from launch.submit.run import Choices
from runs.attempt.script import NEAR_LIMIT_S


@dataclass(frozen=True, kw_only=True)
class ScriptRequest:
    """A script with its arguments, the flags of sbatch, and what is varied; `umask` is the user's.

    `varied` are words such as `--lr=1e-4,3e-4`. `resume` are the flags of later attempts.
    """

    source: Path
    arguments: list[str]
    flags: list[str]
    choices: Choices
    umask: int
    varied: list[str] = field(default_factory=list)
    seeds: int = 0
    repeats: int = 1
    resume: str | None = None

    @cached_property
    def text(self) -> str:
        """The script, byte for byte: undecodable bytes stay as they are."""
        return read_bytes(self.source).decode(errors="surrogateescape")

    @cached_property
    def script(self) -> Script:
        """The script as the linter reads it."""
        return parse_script(self.text, path=self.source)

    @property
    def names(self) -> dict[str, str]:
        """The names that are varied, by the key of the config that holds their value."""
        found = {key_of(word.partition("=")[0]): word.partition("=")[0] for word in self.varied}
        if len(found) < len(self.varied):
            raise ConfigError(f"--vary: {' '.join(self.varied)}: one name is varied twice")
        return found | ({"seed": seed_name(self.text, path=self.source)} if self.seeds else {})

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of each key that is varied."""
        found: dict[str, list[Any]] = {}
        for word in self.varied:
            name, equals, values = word.partition("=")
            if not equals or not values:
                raise ConfigError(f"--vary {word}: write --vary --FLAG=V1,V2 or --vary NAME=V1,V2")
            found[key_of(name)] = values.split(",")
        if self.seeds:
            now = present_value(self.text, self.names["seed"], path=self.source)
            first = int(now) if now.isdigit() else 0
            found["seed"] = list(range(first, first + self.seeds))
        return found

    @property
    def added(self) -> list[str]:
        """The flags of sbatch that are added to the script's own and to those of the user."""
        if self.resume is None:
            return []
        near = [] if self.options.get("signal") else [f"--signal=B:USR1@{NEAR_LIMIT_S}"]
        return [*near, "--requeue", "--open-mode=append"]

    @cached_property
    def options(self) -> dict[str, str]:
        """The values of the script's `#SBATCH` lines and of the user's flags, by long name."""
        return sbatch_options(self.script, self.flags)

    def config(self) -> Command:
        """Return the config of a run."""
        tree = {
            "kind": "command",
            "run": shlex.join(self.arguments),
            "script": str(self.source.absolute()),
            "script_digest": hashlib.sha256(read_bytes(self.source)).hexdigest()[:12],
            "folder": str(Path.cwd()),
            "resume": self.resume,
            "signal": signal_of(self.options) if self.resume is not None else None,
            "resources": resources_of(self.options),
        }
        found = resolve(tree, source=str(self.source))
        assert isinstance(found, Command)
        return found


def key_of(name: str) -> str:
    """Return the key of the config that holds the value of a flag, a key or a variable."""
    plain = name.lstrip("-+").replace("-", "_").replace(".", "_").replace("/", "_")
    return f"params.{plain}_" if plain in GIVEN else f"params.{plain}"
