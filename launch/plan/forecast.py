"""Ask `python -m train cost` for the memory, parameters and step time of configs."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.folder import ROOT

# A config is refused only if its tensors alone exceed the GPU by this factor.
MARGIN = 1.1


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
    """Return an answer per query, a config with its overrides, by one process."""
    try:
        return [_answer(raw) for raw in _ask(queries)] if queries else []
    except (OSError, ValueError) as error:
        return [ForecastAnswer(remark=str(error)) for _ in queries]


def _ask(queries: Sequence[tuple[Path, list[str]]]) -> list[dict[str, Any]]:
    lines = [
        json.dumps({"config": str(config.absolute()), "overrides": overrides})
        for config, overrides in queries
    ]
    # How far the counting is, and why it ends, goes to the terminal as it comes.
    done = subprocess.run(
        [sys.executable, "-m", "train", "cost"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError("the forecast failed, as said above")
    answers = json.loads(done.stdout)
    if not isinstance(answers, list) or len(answers) != len(lines):
        raise ValueError("other cells were answered than were asked for")
    return answers


def _answer(raw: dict[str, Any]) -> ForecastAnswer:
    if not isinstance(raw.get("gpus"), dict):
        return ForecastAnswer(remark=str(raw.get("error", "no answer")))
    return ForecastAnswer(parameters=raw.get("parameters"), gpus=raw["gpus"])
