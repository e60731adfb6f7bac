"""The page of a GPU: `page.md`, filled with the figures in `results.jsonl`."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.advice import advice
from configs.table import formatted, heading

PARTS = ("machine", "attention", "gemm", "trainer", "profile", "resume", "peer", "tests")
PRODUCTS = 12  # forward, dgrad and wgrad of four layers
Line = dict[str, Any]


def write_page(out: Path) -> Path:
    """Write OUT/README.md from OUT/results.jsonl, without a line that was cut; return its path."""
    texts = (out / "results.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    text = page([json.loads(line) for line in texts], name=out.name)
    (out / "README.md").write_text(text, encoding="utf-8")
    return out / "README.md"


def page(lines: Sequence[Line], *, name: str) -> str:
    """Return the page of some lines, of which those measured last count."""
    lines = newest(lines)
    figures: dict[str, Line] = {part: {} for part in PARTS}
    for line in lines:
        if line["state"] == "measured":
            figures[line["part"]][line["name"]] = line["result"]
    facts = figures["machine"].pop("facts", {})
    ratios = figures["peer"].pop("diffusers", {}).get("ratios", [])
    tables = {part: named(figures[part]) for part in PARTS}
    tables["machine"] += "\n" + named({fact: {"fact": value} for fact, value in facts.items()})
    tables["peer"] += "\n" + table(ratios)
    budget = budgets(figures)
    columns = budget.get("measured", {})
    tables["profile"] = named({c: {side: budget[side].get(c) for side in budget} for c in columns})
    tables["missing"] = table(
        {key: line[key] for key in ("part", "name", "state", "reason")}
        for line in lines if "reason" in line
    )  # fmt: skip
    commands = {line["command"]: line["wall_s"] for line in lines}
    tables["commands"] = table({"command": f"`{c}`", "seconds": s} for c, s in commands.items())
    order = facts.get("attention_order", "").split(",")
    tables["advice"] = "\n".join(f"* {one}" for one in advice(figures, budget, order))
    seconds = max((line["time"] for line in lines), default=0.0)
    template = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    return template.format_map(
        {part: found.strip() or "Nothing." for part, found in tables.items()}
        | {key: ", ".join({str(line[key]): None for line in lines}) for key in ("device", "commit")}
        | {"day": time.strftime("%-d %B %Y", time.gmtime(seconds)), "name": name}
    )


def newest(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of each command's newest run that was not skipped, if there is one."""
    tried = {line["command"] for line in lines if line["state"] != "skipped"}
    kept = [one for one in lines if one["state"] != "skipped" or one["command"] not in tried]
    last: dict[str, float] = {}
    for line in kept:
        last[line["command"]] = max(line["time"], last.get(line["command"], 0.0))
    return [line for line in lines if line["time"] == last[line["command"]]]


def budgets(figures: dict[str, Line]) -> dict[str, dict[str, float]]:
    """Return ms per image by column: of the data sheet, of the kernels alone, and measured."""
    if not (profile := next(iter(figures["profile"].values()), None)):
        return {}
    found = {}
    if profile["peak_tflop_per_s"]:
        peak, memory = profile["peak_tflop_per_s"], 0.85 * profile["peak_gb_per_s"]
        found["data sheet"] = _budget(profile, 0.7 * peak, 0.25 * peak, memory)
    attention = [one["tflop_per_s"] for one in figures["attention"].values()]
    gemms = [(one["tflop_per_s"], one["ms"]) for one in figures["gemm"].values()]
    if len(gemms) == PRODUCTS and attention and "copy" in figures["machine"]:
        rate = sum(rate * ms for rate, ms in gemms) / sum(ms for _, ms in gemms)
        copy = figures["machine"]["copy"]["gb_per_s"]
        found["kernels alone"] = _budget(profile, rate, max(attention), copy)
    found["measured"] = profile["ms"]
    return {side: ms | {"sum": sum(ms.values())} for side, ms in found.items()}


def _budget(work: Line, gemm: float, attention: float, gb_per_s: float) -> dict[str, float]:
    rates = {"gemm_tflop": gemm, "attention_tflop": attention}
    rates |= {"elementwise_gb": gb_per_s, "optimizer_gb": gb_per_s}
    return {name.rpartition("_")[0]: 1e3 * work[name] / rate for name, rate in rates.items()}


def named(rows: Line) -> str:
    """Return results by name as a table, with the names in its first column."""
    return table({"": name} | row for name, row in rows.items())


def table(rows: Iterable[Line]) -> str:
    """Return rows as a Markdown table, without columns that have no value."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    heads = [name for name in names if any(row.get(name) is not None for row in rows)]
    cells = [[formatted(row.get(head)).replace("|", "\\|") for head in heads] for row in rows]
    lines = [[heading(head) for head in heads], ["---"] * len(heads), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else ""
