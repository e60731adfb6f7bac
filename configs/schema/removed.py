"""Keys and values that configs of earlier versions may hold and that the schema has no more.

A config that has a removed key at its default is read as if it did not have it. At another value
it is refused, so that nothing trains as something else; `analysis` reads such runs all the same.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.files import read_text
from configs.schema.key import Tag
from configs.yaml12 import parse_yaml

_FILE = Path(__file__).with_name("removed.yaml")


@dataclass(frozen=True, kw_only=True)
class Removed:
    """The value that switched a key off, what to do instead, and the `tag` that it had.

    `kind` is given if the name means something else in other kinds of run.
    """

    default: Any
    instead: str = "remove it"
    tag: Tag | None = None
    kind: str | None = None


_TREE = parse_yaml(read_text(_FILE), source=str(_FILE))
# By dotted name.
REMOVED_KEYS = {name: Removed(**facts) for name, facts in _TREE["keys"].items()}


def removed_key(kind: str, name: str) -> Removed | None:
    """Return what is known of a removed key of a kind of config, if it is one."""
    found = REMOVED_KEYS.get(name)
    return found if found and found.kind in (None, kind) else None


def removed_value(name: str, value: object) -> str | None:
    """Return what to do instead of a removed value of a key that remains, None for another."""
    found: dict[str, str] = _TREE["values"].get(name, {})
    return found.get(value) if isinstance(value, str) else None
