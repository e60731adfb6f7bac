"""Differences between two runs: their configs, by the schema's tags, and their machines."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analysis.foreign_keys import Kind, kind_of, place_of
from analysis.read.machine import THREADS, machine, ranks
from analysis.read.run_log import RunLog, kept_with_log
from configs.schema import KINDS, keys
from configs.schema.removed import REMOVED_KEYS

# Facts in the manifest that follow from a key of the config.
DERIVED_FACTS = {
    "dtypes": ("train.precision", "engine"),
    "dtypes.gather": ("layout",),
    "engine": ("engine",),
    "versions": ("engine",),
    "images_": ("data.folder", "validation."),
}
Source = Literal["config", "machine"]
CLOCK = frozenset(["clock"])
BOTH = CLOCK | {"loss"}
# What a script does as a whole.
_OF_SCRIPT = ("script_digest", "run", "code")
# Facts of a run that can have changed its loss, too.
_OF_LOSS = ("engine", "code", "versions.", "images_")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One key or fact that differs between two runs, and what it affects: loss, clock, ..."""

    name: str
    a: Any
    b: Any
    source: Source
    affects: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name}: {yaml_text(self.a)} -> {yaml_text(self.b)}"


def yaml_text(value: Any) -> str:
    """Return a config value as YAML writes it."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def differences(a: RunLog, b: RunLog) -> list[Difference]:
    """Return every known difference from run `a` to run `b`."""
    found = []
    mixed = _of_loss(a), _of_loss(b)

    def add(name: str, old: Any, new: Any, source: Source, affects: frozenset[str]) -> None:
        told = mixed[0].get(name, old), mixed[1].get(name, new)
        found.append(Difference(name=name, a=told[0], b=told[1], source=source, affects=affects))

    if a.config is not None and b.config is not None:
        tags = _tags(a.config) | _tags(b.config)
        for name, old, new in _unlike(a.config, b.config):
            if name != "name":
                is_foreign = name not in tags or name.startswith("params.")
                is_alike = is_foreign and _stem(name, old) == _stem(name, new)
                # An unknown key affects both.
                affects = frozenset[str]() if is_alike else tags.get(name, BOTH)
                if name == "train.steps" and not (decays(a) or decays(b)):
                    affects -= {"loss"}  # the shorter run is a part of the longer one
                add(name, old, new, "config", affects)
    for name, old, new in _unlike(machine(a.facts), machine(b.facts)):
        is_derived = name == THREADS and _threads_per_rank(a) == _threads_per_rank(b) is not None
        add(name, old, new, "machine", frozenset() if is_derived else _affected_by(name))
    known = {item.name for item in found}
    for name, *_ in _unlike(*mixed):
        if name not in known:
            # The last attempts are alike, and only these count for the rate.
            source: Source = "config" if name in (a.config or {}) else "machine"
            add(name, _last(a, name), _last(b, name), source, frozenset(["loss"]))
    return found


def decays(log: RunLog) -> bool:
    """Whether the learning rate of a run falls towards its last step."""
    return bool((log.config or {}).get("optimizer.decay"))


def _threads_per_rank(log: RunLog) -> float | None:
    threads, count = machine(log.facts).get(THREADS), ranks(log.facts)
    return threads / count if threads and count else None


def _affected_by(fact: str) -> frozenset[str]:
    return BOTH if fact.startswith(_OF_LOSS) else CLOCK


def _of_loss(log: RunLog) -> dict[str, str]:
    """Return what can affect the loss and changed between the attempts of a run."""
    config = log.config or {}
    tags = dict.fromkeys(config, BOTH) | _tags(config)
    return {
        name: values
        for name, values in log.changed.items()
        if "loss" in tags.get(name, _affected_by(name))
    }


def _last(log: RunLog, name: str) -> Any:
    """Return a key or a fact of a run's last attempt."""
    return (machine(log.facts) | dict(log.config or {})).get(name)


def causes(found: list[Difference], *, of: Literal["clock", "loss"]) -> list[Difference]:
    """Return the differences that can have changed the clock (or the loss), each cause once.

    Requested resources do not count, because the machine's facts hold what was allocated. A fact
    that follows from a differing key does not count either.
    """
    return [
        one for one in independent(found) if of in one.affects and "resources" not in one.affects
    ]


def independent(found: list[Difference]) -> list[Difference]:
    """Return the differences without the facts that follow from a differing key or engine."""
    configured = {item.name for item in found if item.source == "config"}
    names = configured | {item.name for item in found if item.name == "engine"}
    return [
        item
        for item in found
        if item.source == "config"
        or not follows(item.name, configured if item.name == "engine" else names)
    ]


def follows(fact: str, configured: Iterable[str]) -> bool:
    """Whether a fact follows from one of the keys `configured`."""
    if fact == "batch_size":
        return any(kind_of(name) == "batch" for name in configured)
    sources = tuple(
        key for prefix, keys in DERIVED_FACTS.items() if fact.startswith(prefix) for key in keys
    )
    return bool(sources) and any(name.startswith(sources) for name in configured)


def _stem(name: str, value: Any) -> Any:
    """Return the name or the folder of a run without its numbers, and of data without the job's.

    Other values stay as they are.
    """
    kind = kind_of(name)
    if kind == "name":
        return re.sub(r"\d+", "", str(value))
    return place_of(value) if kind in ("data", "evaluation") else value


def keys_of_others(a: RunLog, b: RunLog) -> Iterator[Difference]:
    """Yield the differences in keys of scripts and of other trainers, whose names alone speak.

    A key that one config lacks is null in it, unless the configs have little in common.
    """
    if a.config is None or b.config is None:
        return
    is_ours = {a.config.get("kind"), b.config.get("kind")} <= KINDS.keys()
    shared = len(a.config.keys() & b.config.keys())
    are_alike = 2 * shared >= max(len(a.config), len(b.config))
    for item in differences(a, b):
        is_told = are_alike or (item.name in a.config and item.name in b.config)
        is_asked = item.source == "config" and (not is_ours or item.name.startswith("params."))
        is_data = kind_of(item.name) in ("data", "evaluation")
        is_moved = is_data and place_of(item.a) == place_of(item.b)
        if is_asked and is_told and item.affects and not is_moved:
            yield item


def key_kind(item: Difference) -> Kind:
    """Return what the key of a difference is about; what is on or off names no quantity."""
    kind = kind_of(item.name)
    is_switch = {str(item.a).lower(), str(item.b).lower()} & {"true", "false"}
    return "unknown" if is_switch and kind not in ("setting", "evaluation", "sampling") else kind


def unclear_key(a: RunLog, b: RunLog) -> str | None:
    """Return a key that differs and may change what a step or a loss is, None if none may.

    So may another text or other code of a script.
    """
    unknown = [item.name for item in keys_of_others(a, b) if key_kind(item) == "unknown"]
    if any((log.config or {}).get("kind") == "command" for log in (a, b)):
        unknown += [item.name for item in differences(a, b) if item.name in _OF_SCRIPT]
    return unknown[0] if unknown else None


def seeds_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that seed a run: `seed`, and those of scripts and others that end so."""
    is_ours = config.get("kind") in KINDS
    return {
        name: value
        for name, value in config.items()
        if name == "seed"
        or ((not is_ours or name.startswith("params.")) and kind_of(name) == "seed")
    }


def _tags(config: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        names = (name for name in config if kind_of(name) == "label")
        labels = dict.fromkeys(names, frozenset[str]())
        return labels | dict.fromkeys(seeds_of(config), frozenset(["loss"]))
    known = dict.fromkeys(REMOVED_KEYS, BOTH)
    known |= {name: info.affects for name, info in keys(kind).items()}
    # A name inside a mapping has the tags of the mapping.
    groups = ((name, name.rpartition(".")[0]) for name in config)
    known |= {name: known[group] for name, group in groups if group in known}
    ours = (name for name in config if name.startswith("params.") and kind_of(name) == "label")
    known |= dict.fromkeys(ours, frozenset[str]())
    return known | dict.fromkeys(seeds_of(config), frozenset(["loss"]))


def _unlike(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys([*a, *b])
    return [(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]


@kept_with_log
def recipe(log: RunLog) -> frozenset[tuple[str, str]] | None:
    """Return the keys and facts that can affect loss or clock, but for the seed.

    Runs of the same recipe are repeats. Requested resources do not count, because the machine's
    facts hold what was allocated. Return None if the config is unknown.
    """
    if log.config is None:
        return None
    tags = _tags(log.config)
    config = {
        name: _stem(name, value) if name not in tags or name.startswith("params.") else value
        for name, value in log.config.items()
        if (affects := tags.get(name, BOTH)) and "resources" not in affects
    }
    apart = {"name", *seeds_of(log.config)}
    return frozenset(
        (name, yaml_text(value))
        for name, value in (config | machine(log.facts) | _of_loss(log)).items()
        if value is not None and name not in apart
    )
