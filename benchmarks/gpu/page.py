"""The page of a GPU: `page.md`, filled with the figures in `results.jsonl` and those expected."""

import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.results import newest, read_results
from configs.table import formatted, heading

PARTS = ("machine", "attention", "gemm", "trainer", "profile", "tests", "resume", "peer", "lora")
PRODUCTS = 12  # forward, dgrad and wgrad of four layers
HERE = Path(__file__).parent
Line = dict[str, Any]
Figures = dict[str, dict[str, Any]]


def write_page(results: Path) -> Path:
    """Write README.md beside a file of results; return its path."""
    target = results.with_name("README.md")
    text = page(read_results(results), name=results.absolute().parent.name)
    target.write_text(text, encoding="utf-8")
    return target


def page(lines: Sequence[Line], *, name: str) -> str:
    """Return the page of some lines, of which the newest of each figure count."""
    lines = newest(lines)
    figures: Figures = {part: {} for part in PARTS}
    for line in lines:
        if line["state"] == "measured":
            figures[line["part"]][line["figure"]] = dict(line["result"])
    wall = {f"{line['part']}/{line['name']}": line for line in lines if line["state"] == "done"}
    devices = list(dict.fromkeys(line["device"] for line in lines))
    tree = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
    expected = next((e for gpu, e in tree["gpus"].items() if _is_gpu(gpu, devices)), None)
    facts = figures["machine"].pop("facts", {})
    ratios = figures["peer"].pop("diffusers", {}).get("ratios", [])
    budget = budgets(figures, expected=expected, image=tree["image"])
    _add_expected(figures["trainer"], budget, expected)
    tables = {part: named(figures[part]) for part in PARTS}
    tables["machine"] += "\n" + named({fact: {"fact": value} for fact, value in facts.items()})
    tables["peer"] += "\n" + table(ratios)
    columns = budget.get("measured") or budget.get("expected", {})
    tables["profile"] = named({c: {side: budget[side].get(c) for side in budget} for c in columns})
    tables["missing"] = table(
        {"piece": f"{line['part']}/{line['name']}"}
        | {key: line[key] for key in ("figure", "state", "reason")}
        for line in lines if "reason" in line
    )  # fmt: skip
    tables["commands"] = table(
        {"piece": piece, "command": f"`{line['command']}`", "seconds": line["wall_s"]}
        for piece, line in wall.items()
    )
    seconds = max((line["time"] for line in lines), default=0.0)
    commits = list(dict.fromkeys(line["commit"] for line in lines))
    return (HERE / "page.md").read_text(encoding="utf-8").format_map(
        {part: text.strip() or "Nothing." for part, text in tables.items()}
        | {"device": ", ".join(devices), "commit": ", ".join(filter(None, commits)) or "unknown"}
        | {"day": time.strftime("%-d %B %Y", time.gmtime(seconds)), "name": name}
    )  # fmt: skip


def _is_gpu(gpu: str, devices: Sequence[str]) -> bool:
    """Return whether every word of an expected GPU, such as A100-80, is in a device's name."""
    return any(all(word in device for word in gpu.split("-")) for device in devices)


def _add_expected(rates: Figures, budget: dict[str, dict[str, float]], expected: Any) -> None:
    """Put what is expected beside the rate and the MFU of the compiled DiT-XL."""
    if expected and "xl-compiled" in rates:
        low, high = expected["mfu"]
        rates["xl-compiled"] |= {
            "expected_images_per_s": f"below {1000 / budget['expected']['sum']:.0f}",
            "expected_mfu": f"{low:.2f} to {high:.2f}",
        }


def budgets(
    figures: Figures, *, expected: Any, image: dict[str, float]
) -> dict[str, dict[str, float]]:
    """Return ms per image by column: expected, of the kernels alone, and measured."""
    found = {}
    if expected:
        found["expected"] = {name: ms for name, ms in expected.items() if name != "mfu"}
    attention = [one["tflop_per_s"] for one in figures["attention"].values()]
    gemms = [(one["tflop_per_s"], one["ms"]) for one in figures["gemm"].values()]
    if len(gemms) == PRODUCTS and attention and "copy" in figures["machine"]:
        rate = sum(rate * ms for rate, ms in gemms) / sum(ms for _, ms in gemms)
        copy = figures["machine"]["copy"]["gb_per_s"]
        found["kernels alone"] = {
            "gemm": 1e3 * image["gemm_tflop"] / rate,
            "attention": 1e3 * image["attention_tflop"] / max(attention),
            "elementwise": 1e3 * image["elementwise_gb"] / copy,
            "rest": 1e3 * image["rest_gb"] / copy,
        }
    for profile in figures["profile"].values():
        ms = dict(profile["ms"])
        rest = ms.pop("optimizer") + ms.pop("other")
        idle = ms.pop("idle")
        found["measured"] = ms | {"rest": rest, "idle": idle}
    return {side: ms | {"sum": sum(ms.values())} for side, ms in found.items()}


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
