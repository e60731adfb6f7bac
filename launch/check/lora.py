"""Check of a LoRA file."""

from pathlib import Path

from configs.checks.lora import matrices
from configs.terminal import plural


def check_lora(path: Path) -> tuple[str, list[str]]:
    """Return what a LoRA file holds, and its problems: matrices of a layer that do not fit."""
    layers = matrices(path)
    ranks, problems = set[int](), list[str]()
    for layer, pair in layers.items():
        shapes = [pair[is_down].shape for is_down in (True, False) if is_down in pair]
        if len(shapes) < 2:
            problems.append(f"{layer}: one of its two matrices is missing")
        elif shapes[0][:1] != shapes[1][1:2]:
            problems.append(f"{layer}: its matrices {shapes[0]} and {shapes[1]} share no rank")
        else:
            ranks.update(shapes[0][:1])
    types = ", ".join(sorted({each.dtype for pair in layers.values() for each in pair.values()}))
    rank = ", ".join(map(str, sorted(ranks))) or "unknown"
    return f"LoRA of {plural(len(layers), 'layer')}, rank {rank}, {types}", problems
