"""Flags of sbatch as data: parse, check and format them."""

import re
from collections.abc import Iterable
from pathlib import Path

from configs.errors import ConfigError

# By name, without the dashes; a flag without a value is True.
Flags = dict[str, str | bool]

_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(=(.*))?", re.DOTALL)


def parse_flags(words: Iterable[str], *, source: str) -> Flags:
    """Parse words such as `--time=04:00:00`; raise `ConfigError`, which names `source`."""
    flags: Flags = {}
    for word in words:
        match = _FLAG.fullmatch(word)
        if match is None:
            raise ConfigError(
                f"{source}: {word!r} is not a flag; write each as one word, such as --partition=gpu"
            )
        name, equals, value = match.groups()
        if equals and not fits_a_directive(value):
            raise ConfigError(f"{source}: --{name} contains characters that sbatch cannot take")
        flags[name] = value if equals else True
    return flags


def fits_a_directive(value: str) -> bool:
    """Return whether a value fits on an `#SBATCH` line; a newline would begin another one."""
    return value.isprintable() and "\\" not in value


def template_flags(template: Path) -> Flags:
    """Return the flags in a job file's `#SBATCH` lines, which plain sbatch reads itself."""
    words = []
    for line in template.read_text(encoding="utf-8").splitlines():
        if line.startswith("#SBATCH "):
            words.append(line.removeprefix("#SBATCH ").strip())
        elif line and not line.startswith("#"):
            break
    return parse_flags(words, source=str(template))


def to_words(flags: Flags) -> list[str]:
    """Return the flags as words of a command line."""
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
