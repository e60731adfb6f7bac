"""The error of steps that a card predicts: on configs that the fit has not seen, and elsewhere.

    python -m benchmarks.forecast_error [--threads 1,2] [--steps 6] [--clock cpu] [--json FILE]

A number of threads and a precision stand for a machine. Each has a card (`ditbench train card`) and
takes the update and both passes of 20 configs, which differ in width, depth, heads, patch, size,
batch and options. Errors are those of the median step: as predicted (`raw`), after a fit on every
fourth config of the machine (`seen`, of the other 15), and after a fit on all configs of another
machine (`unseen`). `held` is the share of the 90 % intervals that hold the measured step.
For a machine that others load, too, `--clock cpu` counts CPU time, which is the sum of all threads
and therefore needs `--threads 1`, and `--rounds`
repeats all of it and keeps the least of each figure.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from configs.checks.batch import divide
from configs.load import expect, resolve
from configs.schema import Pretrain
from configs.table import show
from runs.cards import Card, Fit
from train.engine.distributed import process_group, read_ranks
from train.engine.numerics import set_precision
from train.forecast import card
from train.forecast.fit import fit_ratios
from train.forecast.measured import CardModel, interval

PRECISIONS = ("fp32", "bf16")
# Width, depth, heads, patch, size, batch; then further keys.
CONFIGS: list[tuple[tuple[int, ...], dict[str, dict[str, Any]]]] = [
    *(
        (sizes, {})
        for sizes in (
            (96, 4, 3, 2, 16, 8), (192, 3, 3, 2, 16, 8), (320, 2, 5, 2, 16, 8),
            (160, 6, 5, 2, 16, 4), (128, 8, 4, 2, 16, 16), (256, 4, 4, 2, 16, 4),
            (384, 3, 6, 2, 16, 4), (64, 10, 2, 2, 16, 16), (128, 4, 2, 2, 32, 4),
            (192, 4, 6, 2, 32, 2), (96, 6, 3, 2, 24, 8), (256, 2, 8, 2, 24, 4),
            (192, 4, 3, 4, 32, 8), (128, 6, 4, 4, 32, 16), (256, 3, 4, 4, 64, 2),
        )
    ),
    ((128, 4, 2, 2, 16, 16), {"model": {"mlp": "swiglu", "mlp_ratio": 8 / 3}}),
    ((192, 4, 3, 2, 16, 8), {"model": {"conditioning": "in_context"}}),
    ((128, 4, 2, 2, 16, 16), {"model": {"qk_norm": False, "positions": "sincos"}}),
    ((192, 4, 3, 2, 16, 16), {"train": {"micro_batch": 4}}),
    ((256, 4, 4, 2, 16, 8), {"activation_checkpointing": {"mode": "full"}}),
]  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure every machine in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument(
        "--steps", type=int, default=6, help="steps of a config, the first left out"
    )
    parser.add_argument("--least", type=float, default=0.06, help="seconds per figure of a card")
    parser.add_argument("--rounds", type=int, default=1, help="keep the least of so many rounds")
    parser.add_argument("--configs", type=int, default=len(CONFIGS), help="only the first N")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.clock == "cpu" and options.threads != "1":
        parser.error("--clock cpu sums the time of all threads: add --threads 1")
    if options.worker:
        clock = time.process_time if options.clock == "cpu" else time.perf_counter
        with mock.patch.object(time, "perf_counter", clock):
            options.worker.write_text(json.dumps(measure(options)))
        return 0
    machines = []
    with tempfile.TemporaryDirectory() as folder:
        for threads in options.threads.split(","):
            out = Path(folder) / f"{threads}.json"
            command = [sys.executable, "-m", "benchmarks.forecast_error", *arguments]
            environment = os.environ | {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive"}
            subprocess.run([*command, "--worker", out], env=environment, check=True)
            machines.append({"threads": threads, **json.loads(out.read_text())})
    if options.json:
        options.json.write_text(json.dumps(machines))
    show(table(machines), "text")
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the card of this process's machine, and the median step of each config.

    Of several rounds, every figure is the least.
    """
    ranks, file = read_ranks(), options.worker.with_suffix(".card")
    least: dict[str, Any] = {"card": None, "steps": {}}
    for _ in range(options.rounds):
        card.main(["--out", str(file), "--least", str(options.least)])
        found, before = json.loads(file.read_text()), least["card"] or json.loads(file.read_text())
        for one, other in zip(found["measured"], before["measured"], strict=True):
            one["value"] = min(one["value"], other["value"])
        least["card"] = found
        with process_group(ranks):
            for precision in PRECISIONS:
                set_precision(precision, ranks.device)
                taken = [
                    step_seconds(config, ranks, options.steps)
                    for config in configs(precision, options.configs)
                ]
                known = least["steps"].get(precision, taken)
                least["steps"][precision] = list(map(min, taken, known))
    return least


def configs(precision: str, count: int) -> list[Pretrain]:
    """Return the first configs in a precision."""
    found = []
    for (width, depth, heads, patch, size, batch), more in CONFIGS[:count]:
        tree: dict[str, dict[str, Any]] = {
            "model": {"width": width, "depth": depth, "heads": heads, "patch": patch},
            "data": {"source": "dummy", "size": size, "channels": 4, "classes": 1000},
            "train": {"global_batch": batch, "precision": precision, "compile": False},
        }
        tree |= {group: tree.get(group, {}) | keys for group, keys in more.items()}
        found.append(expect(resolve(tree, source="benchmark"), Pretrain, source="benchmark"))
    return found


def step_seconds(config: Pretrain, ranks: Any, steps: int) -> float:
    """Return the median seconds of a step, without the loader."""
    layout = divide(config, world=1)
    state, batch = card.random_state(config, ranks)
    taken = []
    for number in range(steps):
        begin = time.perf_counter()
        for _ in range(layout.accumulation):
            state.losses(batch).sum().backward()
        state.update(number + 1)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def table(machines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per machine: errors in percent, and the share of intervals that hold."""
    ratios: dict[str, list[float]] = {}
    spreads = {}
    for machine in machines:
        found = Card.model_validate_json(json.dumps(machine["card"]))
        for precision, steps in machine["steps"].items():
            model = CardModel(found, precision=precision, compiled=False)
            name = f"{machine['threads']} threads {precision}"
            spreads[name] = model.spread()
            ratios[name] = [
                seconds / model.parts(config, divide(config, world=1)).total
                for config, seconds in zip(configs(precision, len(steps)), steps, strict=True)
            ]
    rows = []
    for name, mine in ratios.items():
        fit = fit_ratios(mine[::4], machines=[name])
        rest = [ratio for number, ratio in enumerate(mine) if number % 4]
        row: dict[str, Any] = {"machine": name, "card_spread": spreads[name], "factor": fit.factor}
        row |= errors("raw", mine, None, spreads[name])
        row |= errors("seen", rest, fit, spreads[name], is_fitted=True)
        others = [fit_ratios(other, machines=[key]) for key, other in ratios.items() if key != name]
        pooled = [errors("unseen", mine, other, spreads[name]) for other in others]
        rows.append(
            row | {key: statistics.fmean(each[key] for each in pooled) for key in pooled[0]}
        )
    return rows


def errors(
    name: str, ratios: list[float], fit: Fit | None, spread: float, *, is_fitted: bool = False
) -> dict[str, float]:
    """Return the median and the 90 % quantile of errors in percent, and the share inside."""
    left = [ratio / (fit.factor if fit else 1) for ratio in ratios]
    off = sorted(100 * abs(1 / ratio - 1) for ratio in left)
    half = interval(spread, fit, is_fitted=is_fitted)
    held = statistics.fmean(1 / half <= ratio <= half for ratio in left)
    median, most = statistics.median(off), off[round(0.9 * (len(off) - 1))]
    return {f"{name}_%": median, f"{name}_90th_%": most, f"{name}_held": held}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
