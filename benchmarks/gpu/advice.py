"""Advice: the next thing to do, by rules of a few lines from the figures of a GPU."""

from collections.abc import Iterator
from typing import Any

Figures = dict[str, dict[str, Any]]


def advice(figures: Figures, budgets: Figures, attention: str | None) -> Iterator[str]:
    """Yield a sentence for each rule that applies."""
    for how, one in figures["resume"].items():
        if (one["losses"], one["exit_status"]) != ("equal", 0):
            yield f"Before any study, mend the resume ({how} saves): losses are {one['losses']}, \
and a stopped run exits with {one['exit_status']}."
    runs = figures["trainer"]
    for name, one in runs.items():
        if (bound := one["host_bound"] or 0.0) > 0.2:
            yield f"{name}: in {bound:.0%} of the steps the GPU waits for its host: compile the \
blocks (`train.compile`), or raise `train.micro_batch`."
        if one["data_share"] > 0.05:
            yield f"{name}: {one['data_share']:.0%} of training waits for data: raise \
`data.workers`."
        gb, predicted = one["gpu_gb"], one.get("predicted_gb")
        if gb and predicted and abs(gb / predicted - 1) > 0.1:
            yield f"{name} took {gb:.1f} GB, but {predicted:.1f} GB were predicted: mend \
`train/cost/memory.py`."
    compiled, eager = runs.get("xl-compiled"), runs.get("xl-eager")
    if compiled and (compiled["mfu"] or 1) < 0.4 and "measured" in budgets and len(budgets) > 1:
        against = budgets.get("kernels alone") or budgets["expected"]
        measured = budgets["measured"]
        over = {name: ms - against.get(name, 0.0) for name, ms in measured.items() if name != "sum"}
        worst = max(over, key=lambda name: over[name])
        yield f"MFU is {compiled['mfu']:.1%}, under 40 %: begin with {worst}, which is over its \
budget by {over[worst]:.2f} of {measured['sum']:.2f} ms per image."
    if compiled and eager and compiled["images_per_s"] < 1.2 * eager["images_per_s"]:
        yield "Compiled blocks are less than 1.2 times as fast as eager ones: look for graph \
breaks (`TORCH_LOGS=graph_breaks,recompiles`)."
    auto = runs.get("xl-auto")
    if compiled and auto and auto["images_per_s"] > 1.02 * compiled["images_per_s"]:
        yield f"Set `train.micro_batch=auto`: {auto['micro_batch']} at once are faster than 128."
    rates = {name: one["tflop_per_s"] for name, one in figures["attention"].items()}
    if attention in rates and max(rates.values()) > 1.05 * rates[attention]:
        best = max(rates, key=lambda name: rates[name])
        yield f"Attention: torch takes {attention}, but {best} is faster at this shape."
    square = figures["machine"].get("matmul bf16", {}).get("tflop_per_s", 0.0)
    products = {name: one["tflop_per_s"] for name, one in figures["gemm"].items()}
    if slow := [name for name, rate in products.items() if rate < 0.6 * square]:
        yield f"Products under 60 % of the {square:.0f} TFLOP/s of a square one: \
{', '.join(slow)}. Try a larger micro batch, or max-autotune."
