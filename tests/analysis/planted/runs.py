"""Runs with planted speeds and losses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from analysis.stats.intervals import Floats
from benchmarks.analysis_coverage.folders import START, Run, write_run
from configs.yaml12 import dump_yaml
from tests.analysis.read.test_program import CONFIG
from tests.analysis.synthetic_runs import write_lines

# Gives the verdicts of `compare` on the second arm.
Verdicts = Callable[..., dict[str, Any]]
WORKERS = ("data.workers=3",)
RNG = np.random.default_rng(1)


def seconds(number: int = 120, *, slower: float = 1.0) -> Floats:
    return np.asarray(slower * np.exp(0.01 * RNG.standard_normal(number)))


def falling(number: int = 120) -> Floats:
    step = 10.0 * np.arange(1, number + 1)
    return np.asarray(0.2 * (1 + 4 / np.sqrt(1 + step / 20)))


def evaluated(curve: Floats, *, each: int) -> dict[int, dict[str, float]]:
    """Return the validation losses of a curve [n] at each so many of its points."""
    rows = range(each - 1, len(curve), each)
    return {row: {"validation_loss": float(curve[row])} for row in rows}


def end_as(run: Path, event: str, *, steps: int) -> None:
    """Make a run one of so many planned steps that ended otherwise than done."""
    *lines, last = (run / "metrics.jsonl").read_text().splitlines()
    lines.append(json.dumps(json.loads(last) | {"event": event}))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    text = (run / "config.yaml").read_text()
    planned = text.replace(f"steps: {json.loads(last)['step']}", f"steps: {steps}")
    (run / "config.yaml").write_text(planned)


def write_program(folder: Path, *, printed: str, lr: float, seed: int, start: float) -> None:
    """Write the run of a program that prints a rate."""
    write_run(folder, Run(seconds=np.ones(3), starts=(start,)))
    (folder / "config.yaml").write_text(dump_yaml(CONFIG | {"params": {"lr": lr}, "seed": seed}))
    lines = [f"step {n} loss {0.2 + 1 / n:.4f} {printed} it/s\n" for n in range(1, 200)]
    (folder / "attempts" / "001" / "output.log").write_text("".join(lines))
    event = {"attempt": 1, "time": start, "event": "started", "step": 0}
    write_lines(folder / "metrics.jsonl", [event])


def turns(
    repeats: int, *, apart: float = 1000.0, other: tuple[str, ...] = WORKERS
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each run of two arms that take turns: its name, its arm, and what tells it apart.

    The second arm has `other` settings, and a run starts so many seconds after the one before.
    """
    for number in range(repeats):
        for place, arm in enumerate("ab"):
            start = START + apart * (2 * number + place)
            own = {"seed": number, "overrides": other if arm == "b" else (), "starts": (start,)}
            yield f"{arm}{number}", arm, own
