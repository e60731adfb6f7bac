r"""User options about logs: a pattern for lines, names of columns, facts that a log lacks.

The options come from the command line and, by glob, from a `logs.yaml` beside the logs:

    "run-*.log":
      pattern: 'step (?P<step>\d+).*?loss (?P<loss>\S+)'
      set: {gpus: 'run-(\d+)', batch: 256}
    "*.csv":
      columns: {step: iter, loss: total_loss}
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from analysis.read.batch import with_batch
from analysis.read.run_log import RunLog
from analysis.read.text.pattern import compiled
from configs.errors import ConfigError, Unreadable
from configs.files import read_text
from configs.yaml12 import parse_yaml

NAME = "logs.yaml"
# Names that may be set, and the facts that they become.
FACTS = {"gpus": "ranks", "nodes": "nodes", "batch": "global_batch_size"}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading: `columns` are foreign names by ours, `facts` are texts by name.

    With `short_names`, for people, run names lack their ids where these differ.
    """

    pattern: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    short_names: bool = False

    def with_facts(self, log: RunLog) -> RunLog:
        """Return a log with the facts that were set, and with images if the batch is known."""
        facts = {FACTS[name]: _number(text, log.path) for name, text in self.facts.items()}
        if not facts:
            return log
        log = with_batch(log, facts["global_batch_size"]) if "batch" in self.facts else log
        return replace(log, facts={**log.facts, **facts})


_CURRENT: ContextVar[ReadOptions] = ContextVar("read_options")


@contextmanager
def reading_with(options: ReadOptions) -> Iterator[None]:
    """Read every log in this context with these options."""
    token = _CURRENT.set(options)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def options_of_command() -> ReadOptions:
    """Return the options of the context."""
    return _CURRENT.get(ReadOptions())


def parse_options(*, pattern: str | None, columns: str | None, facts: list[str]) -> ReadOptions:
    """Return the options of a command line; raise `Unreadable` for an invalid one."""
    if pattern is not None:
        compiled(pattern)
    pairs = [_pair(text, "--columns") for text in columns.split(",")] if columns else []
    known = _known(dict(_pair(text, "--set") for text in facts), "--set")
    return ReadOptions(pattern=pattern, columns=dict(pairs), facts=known)


def options_for(path: Path) -> ReadOptions:
    """Return the options for one file: those of the context, then of the `logs.yaml` beside it."""
    given, beside = options_of_command(), path.parent / NAME
    if not beside.is_file():
        return given
    for glob, entry in _globs(beside).items():
        if fnmatch(path.name, glob):
            return ReadOptions(
                pattern=given.pattern or entry.get("pattern"),
                columns={**entry.get("columns", {}), **given.columns},
                facts={**_known(entry.get("set", {}), str(beside)), **given.facts},
            )
    return given


def _globs(path: Path) -> dict[str, dict[str, Any]]:
    try:
        tree = parse_yaml(read_text(path), source=str(path))
    except (ConfigError, OSError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from None
    known = {"pattern": str, "columns": dict, "set": dict}
    for glob, entry in tree.items() if isinstance(tree, dict) else [("", None)]:
        if not isinstance(entry, dict) or not all(
            name in known and isinstance(value, known[name]) for name, value in entry.items()
        ):
            raise Unreadable(f"{path}: {glob!r}: expected pattern, columns, set")
    return dict(tree)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise Unreadable(f"{option} {text!r}: expected NAME=VALUE")
    return name, value


def _known(facts: Mapping[str, Any], source: str) -> dict[str, str]:
    if unknown := set(facts) - FACTS.keys():
        raise Unreadable(f"{source}: {sorted(unknown)[0]!r}: expected one of {', '.join(FACTS)}")
    return {name: str(value) for name, value in facts.items()}


def _number(text: str, path: Path) -> int:
    """Return a number as typed, or that of a pattern's first group in the path."""
    try:
        match = re.search(text, path.name) or re.search(text, str(path))
        return int(text) if text.isdecimal() else int(match[1] if match else "")
    except (re.error, IndexError, ValueError, TypeError):
        raise Unreadable(f"--set: {text!r} gives no number for {path}") from None
