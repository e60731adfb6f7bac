"""What else differs between two runs: their configs by the schema's tags, and their machines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from configs.schema import KINDS, keys

# A fact of the machine that only follows from a key of the config.
FOLLOWS = {"dtypes": "train.precision", "dtypes.gather": "layout", "engine": "engine"}
CLOCK = frozenset(["clock"])


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One key or fact that two runs do not share, and what a change of it can change."""

    name: str
    a: Any
    b: Any
    source: Literal["config", "machine"]
    affects: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name}: {yaml_text(self.a)} -> {yaml_text(self.b)}"


def yaml_text(value: Any) -> str:
    """A value of a config as its YAML would spell it."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def differences(a: RunLog, b: RunLog) -> list[Difference]:
    """Everything known that differs from run `a` to run `b`."""
    found = []
    if a.config is not None and b.config is not None:
        tags = _tags(a.config) | _tags(b.config)
        found += [
            Difference(name=name, a=old, b=new, source="config", affects=tags.get(name, CLOCK))
            for name, old, new in _unlike(a.config, b.config)
        ]
    found += [
        Difference(name=name, a=old, b=new, source="machine", affects=CLOCK)
        for name, old, new in _unlike(machine(a.facts), machine(b.facts))
    ]
    return found


def causes(found: list[Difference], *, of: Literal["clock", "loss"]) -> list[Difference]:
    """Those that can have changed the clock (or the loss), each thing once.

    What was asked of the cluster does not count, since what was given stands among the facts;
    a fact that follows from a key that differs does not count beside it.
    """
    configured = [item.name for item in found if item.source == "config"]
    return [
        item
        for item in found
        if of in item.affects
        and "resources" not in item.affects
        and not (item.source == "machine" and follows(item.name, configured))
    ]


def follows(fact: str, configured: Iterable[str]) -> bool:
    """Whether a fact of the machine only follows from one of the keys that differ."""
    causes_of = tuple(cause for prefix, cause in FOLLOWS.items() if fact.startswith(prefix))
    return bool(causes_of) and any(name.startswith(causes_of) for name in configured)


def _tags(config: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return {}
    return {name: info.affects for name, info in keys(kind).items()}


def _unlike(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys([*a, *b])
    return [(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]


def signature(log: RunLog, *, without: frozenset[str]) -> tuple[tuple[str, str], ...] | None:
    """What can have changed loss or clock, but for keys and facts that begin with `without`.

    Runs of one signature differ in nothing else that is known; None where configs are unknown.
    """
    if log.config is None:
        return None
    tags = _tags(log.config)
    asked = {
        name: value
        for name, value in log.config.items()
        if (affects := tags.get(name, CLOCK)) and "resources" not in affects
    }
    return tuple(
        (name, yaml_text(value))
        for name, value in sorted((asked | machine(log.facts)).items())
        if not name.startswith(tuple(without))
    )
