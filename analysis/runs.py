"""One row per run: how far it is, how it does, and where it ran."""

from typing import Any

from analysis.read.log import RunLog
from analysis.speed import measure


def run_row(log: RunLog) -> dict[str, Any]:
    """What is known of a run; absent values are None."""
    state = log.state or {}
    rate = measure(log, clock="train")
    reason = state.get("reason")
    config = log.config or {}
    return {
        "run": log.name,
        "state": f"{state['event']} ({reason})" if reason else state.get("event"),
        "step": int(log.step[-1]) if len(log) else state.get("step"),
        "steps": config.get("train.steps"),
        "loss": log.last("loss"),
        "steps_per_s": rate.steps_per_s.value if rate.steps_per_s else None,
        "images_per_s": rate.images_per_s,
        "ranks": ranks(log),
        "attempts": log.attempts,
        "where": where(log),
    }


def ranks(log: RunLog) -> int | None:
    """How many ranks the last attempt had."""
    for name in ("world_size", "world", "ranks"):
        if isinstance(log.facts.get(name), int):
            return int(log.facts[name])
    return None


def where(log: RunLog) -> str | None:
    """The GPU model, node and site of the last attempt, as far as they were noted."""
    gpu, site = log.facts.get("gpu"), log.facts.get("site")
    nodes = log.facts.get("nodes")
    model = gpu.get("model", gpu.get("name")) if isinstance(gpu, dict) else gpu
    named = nodes if isinstance(nodes, list) else []
    names = [node.get("name") if isinstance(node, dict) else node for node in named]
    said = [str(part) for part in (model, ",".join(map(str, names)), site) if part]
    return " ".join(said) or None
