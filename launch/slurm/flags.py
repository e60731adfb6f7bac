"""Flags of sbatch as data: those of a job's template, of the site, of the command line."""

import re
from collections.abc import Iterable
from pathlib import Path

from configs.errors import ConfigError

# By name, without the dashes; a flag that takes no value has True.
Flags = dict[str, str | bool]

_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(=(.*))?", re.DOTALL)


def parse_flags(words: Iterable[str], *, source: str) -> Flags:
    """Words such as `--time=04:00:00`; `ConfigError` names `source` where one is none."""
    flags: Flags = {}
    for word in words:
        match = _FLAG.fullmatch(word)
        if match is None:
            raise ConfigError(
                f"{source}: {word!r} is no flag; write each in one word, such as --partition=gpu"
            )
        name, equals, value = match.groups()
        if equals and not fits_a_directive(value):
            raise ConfigError(f"{source}: --{name} holds characters that sbatch cannot be given")
        flags[name] = value if equals else True
    return flags


def fits_a_directive(value: str) -> bool:
    """Whether sbatch reads a value back from an `#SBATCH` line: a newline would begin another."""
    return value.isprintable() and "\\" not in value


def template_flags(template: Path) -> Flags:
    """The flags in a job file's `#SBATCH` lines, which Slurm itself reads under plain sbatch."""
    words = []
    for line in template.read_text(encoding="utf-8").splitlines():
        if line.startswith("#SBATCH "):
            words.append(line.removeprefix("#SBATCH ").strip())
        elif line and not line.startswith("#"):
            break
    return parse_flags(words, source=str(template))


def spell(flags: Flags) -> list[str]:
    """The words of a command line."""
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
