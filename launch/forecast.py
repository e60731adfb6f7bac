"""Which cells of a grid cannot run, by the closed forms of `train`: asked once for all of them."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.grid.cells import Cell
from configs.run.folder import ROOT
from configs.schema import Pretrain
from configs.yaml12 import dump_value

# A cell is hopeless where its tensors alone take so much of the GPU: closed forms err by less.
MARGIN = 1.1
_LONGEST_S = 120


@dataclass(frozen=True, kw_only=True)
class Forecasts:
    """By cell: why it is hopeless; cells that can run, or of which nothing is known, are absent.

    `unknown` counts the latter, `remark` says why where none could be judged.
    """

    hopeless: dict[str, str]
    unknown: int
    remark: str | None = None


def forecasts(cells: Sequence[Cell], *, base: str) -> Forecasts:
    """The verdicts on the cells of a study over the config at `base`."""
    asked = [cell for cell in cells if _can_be_judged(cell)]
    others = len(cells) - len(asked)
    if not asked:
        return Forecasts(hopeless={}, unknown=others)
    try:
        answers = _ask([_line(cell, base) for cell in asked])
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Forecasts(hopeless={}, unknown=len(cells), remark=f"no forecast: {error}")
    told = dict(zip((cell.name for cell in asked), answers, strict=True))
    hopeless = {name: why for name, answer in told.items() if (why := _why_hopeless(answer))}
    return Forecasts(
        hopeless=hopeless,
        unknown=others + sum(not isinstance(answer.get("gpus"), dict) for answer in answers),
    )


def _can_be_judged(cell: Cell) -> bool:
    return isinstance(cell.config, Pretrain) and cell.config.resources.gpus_per_node > 0


def _line(cell: Cell, base: str) -> str:
    overrides = [f"{name}={dump_value(value)}" for name, value in cell.changes.items()]
    return json.dumps({"config": base, "overrides": overrides})


def _ask(lines: list[str]) -> list[dict[str, Any]]:
    """An answer per line; ValueError where there is none."""
    with tempfile.TemporaryDirectory(prefix="ditbench-") as folder:
        file = Path(folder) / "cells.jsonl"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "train", "forecast", "--cells", file, "--json"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
        )
    if done.returncode not in (0, 1):
        raise ValueError((done.stderr.strip().splitlines() or ["it says nothing"])[-1])
    answers = json.loads(done.stdout)
    if not isinstance(answers, list) or len(answers) != len(lines):
        raise ValueError("its answer has other cells than were asked for")
    return answers


def _why_hopeless(answer: dict[str, Any]) -> str | None:
    """The reason where the cell is too large for every GPU that it may get."""
    gpus = answer.get("gpus")
    if not isinstance(gpus, dict) or not gpus:
        return None
    whys = [
        f"{name}: {gpu.get('reason')}; would fit: {gpu.get('fix')}"
        for name, gpu in gpus.items()
        if not gpu["fits"] and gpu["gib"]["peak"] > MARGIN * gpu["capacity_gib"]
    ]
    return whys[0] if len(whys) == len(gpus) else None
