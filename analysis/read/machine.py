"""What a manifest's entry says of the machine, in a form that two runs can be compared by."""

from collections.abc import Mapping
from typing import Any

from configs.load import flatten

# What names one attempt and would differ between any two runs.
IDENTITY = frozenset([
    "attempt", "time", "began", "ended", "source", "command", "host", "slurm", "placement",
    "commit", "dirty",
])  # fmt: skip
# What follows from the config and the number of ranks.
DERIVED = frozenset([
    "parameters", "macs_per_image", "training_flops_per_image", "recomputed_macs_per_image",
    "tokens_per_image", "replicate", "shard", "tensor", "micro_batch", "accumulation",
    "base_parameters", "images_in_set",
])  # fmt: skip


def machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Devices, threads, nodes, versions, commit and dtypes, flat; what is unknown is absent."""
    places = placement(facts)
    kept = {name: fact for name, fact in facts.items() if name not in IDENTITY | DERIVED}
    seen: dict[str, Any] = {
        "gpu": _models(places, "gpu"),
        "gpu_memory_gb": _models(places, "gpu_memory_gb"),
        "cpu": _models(places, "cpu"),
        "nodes": len({str(place.get("node")) for place in places}) or None,
        "threads of all ranks": _threads(places),
        "code": _code(facts),
    }
    return {name: fact for name, fact in (seen | flatten(kept)).items() if fact is not None}


def placement(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry per rank, in order, where the manifest has them."""
    places = facts.get("placement")
    return [p for p in places if isinstance(p, dict)] if isinstance(places, list) else []


def ranks(facts: Mapping[str, Any]) -> int | None:
    """How many ranks there were."""
    count = facts.get("ranks")
    return count if type(count) is int and count > 0 else None


def gpu(facts: Mapping[str, Any]) -> str | None:
    """The GPU model (several, joined, in a mixed job) as the driver reports it."""
    return _models(placement(facts), "gpu")


def where(facts: Mapping[str, Any]) -> str | None:
    """Device model and nodes, for a table."""
    places = placement(facts)
    nodes = dict.fromkeys(str(place["node"]) for place in places if place.get("node"))
    said = [_models(places, "gpu") or _models(places, "cpu"), ",".join(nodes)]
    return " on ".join(part for part in said if part) or None


def _code(facts: Mapping[str, Any]) -> str | None:
    """The commit, marked where the tree differed from it."""
    commit = facts.get("commit")
    if not isinstance(commit, str):
        return None
    return commit[:12] + (" with changes" if facts.get("dirty") else "")


def _models(places: list[dict[str, Any]], name: str) -> str | None:
    found = dict.fromkeys(str(place[name]) for place in places if place.get(name) is not None)
    return " + ".join(sorted(found)) or None


def _threads(places: list[dict[str, Any]]) -> int | None:
    counts: list[Any] = [place.get("threads") for place in places]
    return sum(counts) if counts and all(type(count) is int for count in counts) else None
