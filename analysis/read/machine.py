"""The machine of an attempt, from its manifest entry, in a form that two runs are compared by."""

from collections.abc import Mapping
from typing import Any

from configs.load import flatten

# Facts of one attempt, which differ between any two runs.
IDENTITY = frozenset([
    "attempt", "time", "began", "ended", "source", "command", "host", "slurm", "turn", "placement",
    "commit", "dirty", "changes",
])  # fmt: skip
# Facts that follow from the config and the number of ranks.
DERIVED = frozenset([
    "parameters", "macs_per_image", "training_flops_per_image", "recomputed_macs_per_image",
    "extra_macs_per_image", "tokens_per_image", "replicate", "shard", "tensor", "micro_batch",
    "accumulation", "vae_sha256", "base_parameters", "compile",
    "newton_schulz_flops_per_step", "prompts", "mean_loss",
])  # fmt: skip

THREADS = "threads of all ranks"


def machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return devices, threads, nodes, versions, commit and dtypes, flat; unknown ones left out."""
    places = placement(facts)
    kept = {name: fact for name, fact in facts.items() if name not in IDENTITY | DERIVED}
    devices: dict[str, Any] = {
        "gpu": _models(places, "gpu"),
        "gpu_memory_gb": _models(places, "gpu_memory_gb"),
        "power_limit_w": _models(places, "power_limit_w"),
        "cpu": _models(places, "cpu"),
        "nodes": len(nodes(facts)) or None,
        THREADS: _threads(places),
        "code": _code(facts),
    }
    return {name: fact for name, fact in (devices | flatten(kept)).items() if fact is not None}


def placement(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one entry per rank, in order, if the manifest has them."""
    places = facts.get("placement")
    return [p for p in places if isinstance(p, dict)] if isinstance(places, list) else []


def nodes(facts: Mapping[str, Any]) -> frozenset[str]:
    """Return the nodes of the ranks, none if they are not known.

    Those of several clusters may have the same names.
    """
    slurm = facts.get("slurm")
    cluster = slurm.get("cluster") if isinstance(slurm, Mapping) else None
    of = f" of {cluster}" if cluster else ""
    return frozenset(f"{place['node']}{of}" for place in placement(facts) if place.get("node"))


def ranks(facts: Mapping[str, Any]) -> int | None:
    """Return the number of ranks."""
    count = facts.get("ranks")
    return count if type(count) is int and count > 0 else None


def gpu(facts: Mapping[str, Any]) -> str | None:
    """Return the GPU model as the driver reports it; those of a mixed job are joined."""
    return _models(placement(facts), "gpu")


def where(facts: Mapping[str, Any]) -> str | None:
    """Return the device model and nodes, for a table."""
    places = placement(facts)
    nodes = dict.fromkeys(str(place["node"]) for place in places if place.get("node"))
    parts = [_models(places, "gpu") or _models(places, "cpu"), ",".join(nodes)]
    return " on ".join(part for part in parts if part) or None


def _code(facts: Mapping[str, Any]) -> str | None:
    """Return the commit, marked if the tree differed from it."""
    commit = facts.get("commit")
    if not isinstance(commit, str):
        return None
    changes = filter(None, ["with changes" if facts.get("dirty") else "", facts.get("changes")])
    return " ".join([commit[:12], *changes])


def _models(places: list[dict[str, Any]], name: str) -> str | None:
    found = dict.fromkeys(str(place[name]) for place in places if place.get(name) is not None)
    return " + ".join(sorted(found)) or None


def _threads(places: list[dict[str, Any]]) -> int | None:
    counts: list[Any] = [place.get("threads") for place in places]
    return sum(counts) if counts and all(type(count) is int for count in counts) else None
