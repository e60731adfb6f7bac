"""Differences between two runs: their configs, by the schema's tags, and their machines."""

import re
from collections.abc import Iterable, Mapping, Sequence
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
# Keys of the data, and the number of images that a run found.
_OF_IMAGES = ("data.", "images_in_set")
# What changes how a step is drawn, or a term of it, not what a validation loss measures.
_OF_STEPS = (
    "repa.weight", "engine", "objective.sampler", "objective.strata", "objective.bin_shares",
    "objective.label_dropout", "objective.extra.",
)  # fmt: skip
# What our keys and facts are about, as far as losses depend on them; the first of these counts.
_OURS: tuple[tuple[str | tuple[str, ...], Kind], ...] = (
    (_OF_STEPS, "term"), ("data.flip", "term"), ("data.skip_bad", "setting"), (_OF_IMAGES, "data"),
    ("train.steps", "length"), ("objective.", "objective"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One key or fact that differs between two runs, what it affects, and what it is about.

    It affects the loss, the clock, ... Of a foreign key, one of a script or of another trainer,
    only the words of its name tell what it is about.
    """

    name: str
    a: Any
    b: Any
    source: Source
    affects: frozenset[str]
    kind: Kind
    is_foreign: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {yaml_text(self.a)} -> {yaml_text(self.b)}"


def yaml_text(value: Any) -> str:
    """Return a config value as YAML writes it."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def differences(a: RunLog, b: RunLog) -> list[Difference]:
    """Return every known difference from run `a` to run `b`."""
    configs = [dict(log.config or {}) for log in (a, b)]
    machines, mixed = [_machine(a), _machine(b)], [_of_loss(a), _of_loss(b)]
    affected: dict[str, frozenset[str]] = {}
    if a.config is not None and b.config is not None:
        tags = _tags(a.config) | _tags(b.config)
        for name, old, new in _unlike(*configs):
            is_foreign = name not in tags or name.startswith("params.")
            is_alike = is_foreign and _stem(name, old) == _stem(name, new)
            # An unknown key affects both.
            affected[name] = frozenset[str]() if is_alike else tags.get(name, BOTH)
        affected.pop("name", None)
        if "train.steps" in affected and not (decays(a) or decays(b)):
            affected["train.steps"] -= {"loss"}  # the shorter run is a part of the longer one
    keys = {*affected}
    for name, *_ in _unlike(*machines):
        is_derived = name == THREADS and _threads_per_rank(a) == _threads_per_rank(b) is not None
        affected.setdefault(name, frozenset() if is_derived else _affected_by(name))
    for name, *_ in _unlike(*mixed):
        # The last attempts are alike, and only these count for the rate.
        affected.setdefault(name, frozenset(["loss"]))
        keys |= {name} & configs[0].keys()
    return [
        Difference(
            name=name,
            a=mixed[0].get(name, (configs if name in keys else machines)[0].get(name)),
            b=mixed[1].get(name, (configs if name in keys else machines)[1].get(name)),
            source="config" if name in keys else "machine",
            affects=affects,
            **_about(name, configs, affects, is_key=name in keys),
        )
        for name, affects in affected.items()
    ]


def _machine(log: RunLog) -> dict[str, Any]:
    """Return the machine of a run, and the micro batch that was tuned for it, if it was."""
    tuned = (log.config or {}).get("train.micro_batch") == "auto"
    found = {"micro_batch": log.facts.get("micro_batch")} if tuned else {}
    return machine(log.facts) | found


def _about(
    name: str, configs: Sequence[Mapping[str, Any]], affects: frozenset[str], *, is_key: bool
) -> dict[str, Any]:
    """Return the `kind` of a difference, and whether it `is_foreign`."""
    is_ours = {config.get("kind") for config in configs} <= KINDS.keys()
    old, new = (config.get(name) for config in configs)
    if is_ours and not (is_key and name.startswith("params.")):
        return {"kind": _kind_of_ours(name, old, new, affects)}
    # A key that one config lacks is null in it, unless the configs have little in common.
    shared, longest = len(configs[0].keys() & configs[1].keys()), max(map(len, configs))
    is_told = 2 * shared >= longest or all(name in config for config in configs)
    kind = kind_of(name) if is_key and is_told and affects else "label"
    # What is on or off names no quantity.
    is_switch = {str(old).lower(), str(new).lower()} & {"true", "false"}
    beside = ("label", "setting", "evaluation", "sampling")
    return {"kind": "unknown" if is_switch and kind not in beside else kind, "is_foreign": True}


def _kind_of_ours(name: str, old: Any, new: Any, affects: frozenset[str]) -> Kind:
    """Return what one of our keys or facts is about, as far as losses depend on it."""
    if name == "data.path":
        # A data set may have been copied to another folder, under its own name.
        return "data" if place_of(old) != place_of(new) else "setting"
    if "loss" not in affects:
        return "evaluation" if "validation" in affects else "setting"
    return next((kind for names, kind in _OURS if name.startswith(names)), "setting")


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
    sources = {item.name for item in found if item.source == "config" or item.name == "engine"}
    return [
        item
        for item in found
        if item.source == "config" or not follows(item.name, sources - {item.name})
    ]


def follows(fact: str, configured: Iterable[str]) -> bool:
    """Whether a fact follows from one of the keys `configured`."""
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


def unclear_key(a: RunLog, b: RunLog) -> str | None:
    """Return a key that differs and may change what a step or a loss is, None if none may.

    So may another text or other code of a script.
    """
    found = differences(a, b)
    unknown = [item.name for item in found if item.kind == "unknown"]
    if any((log.config or {}).get("kind") == "command" for log in (a, b)):
        unknown += [item.name for item in found if item.name in _OF_SCRIPT]
    return unknown[0] if unknown else None


def difference_rows(a: RunLog, b: RunLog) -> list[dict[str, Any]]:
    """Return a row per difference from run `a` to run `b`."""
    return [
        {
            "differs": item.name,
            "affects": " ".join(sorted(item.affects)) or "nothing",
            "from": yaml_text(item.a),
            "to": yaml_text(item.b),
        }
        for item in independent(differences(a, b))
    ]


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
