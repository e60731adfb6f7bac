"""Ask `python -m train forecast` for the parameters and the GPU memory of configs."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.folder import ROOT

# A cell is dropped only if its tensors alone exceed the GPU by this factor: the error of the
# closed forms is smaller.
MARGIN = 1.1
_TIMEOUT_S = 120


@dataclass(frozen=True, kw_only=True)
class ForecastAnswer:
    """Parameters and memory by GPU of one config; `remark` says why they are missing."""

    parameters: int | None = None
    gpus: dict[str, dict[str, Any]] = field(default_factory=dict)
    remark: str = ""

    def gpu(self) -> dict[str, Any] | None:
        """Return the forecast of the first GPU, with the `parameters`; None without any."""
        found = next(iter(self.gpus.values()), None)
        return found and found | {"parameters": self.parameters}

    def too_large(self) -> str | None:
        """Return the reason if the config clearly fits on none of its GPUs."""
        reasons = [
            f"{name}: {gpu['reason']}; would fit: {gpu['fix']}"
            for name, gpu in self.gpus.items()
            if not gpu["fits"] and gpu["gib"]["peak"] > MARGIN * gpu["capacity_gib"]
        ]
        return reasons[0] if reasons and len(reasons) == len(self.gpus) else None


def ask(queries: Sequence[tuple[Path, list[str]]]) -> list[ForecastAnswer]:
    """Return an answer per query, a config with its overrides; one process answers all."""
    if not queries:
        return []
    try:
        return [_answer(raw) for raw in _ask(queries)]
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [ForecastAnswer(remark=str(error)) for _ in queries]


def _ask(queries: Sequence[tuple[Path, list[str]]]) -> list[dict[str, Any]]:
    lines = [
        json.dumps({"config": str(config.absolute()), "overrides": overrides})
        for config, overrides in queries
    ]
    with tempfile.TemporaryDirectory(prefix="ditbench-") as folder:
        file = Path(folder) / "cells.jsonl"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "train", "forecast", "--cells", file, "--json"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    if done.returncode not in (0, 1):
        raise ValueError((done.stderr.strip().splitlines() or ["the forecast printed nothing"])[-1])
    answers = json.loads(done.stdout)
    if not isinstance(answers, list) or len(answers) != len(lines):
        raise ValueError("the forecast answered other cells than were asked for")
    return answers


def _answer(raw: dict[str, Any]) -> ForecastAnswer:
    if not isinstance(raw.get("gpus"), dict):
        # An error names its line of the file of cells, which is gone.
        error = re.sub(r"\A.*/cells\.jsonl:\d+: ", "", str(raw.get("error", "no answer")))
        return ForecastAnswer(remark=error)
    return ForecastAnswer(parameters=raw.get("parameters"), gpus=raw["gpus"])
