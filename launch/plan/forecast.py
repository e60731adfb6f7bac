"""Ask `python -m train cost`, or finetune, for the memory, parameters and step time of configs."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.load import read_tree
from runs.folder import ROOT

# A cell is dropped only if its tensors alone exceed the GPU by this factor.
MARGIN = 1.1
# The first answer about a network takes seconds, and later ones do not.
_TIMEOUT_S = 900


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
    """Return an answer per query, a config with its overrides; one process answers each kind."""
    answers: dict[int, ForecastAnswer] = {}
    engines = [_engine(config) for config, _ in queries]
    for engine in dict.fromkeys(engines):
        numbers = [number for number, each in enumerate(engines) if each == engine]
        try:
            found = [_answer(raw) for raw in _ask([queries[number] for number in numbers], engine)]
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            found = [ForecastAnswer(remark=str(error)) for _ in numbers]
        answers |= zip(numbers, found, strict=True)
    return [answers[number] for number in range(len(queries))]


def _engine(config: Path) -> str:
    """Return the package that trains a config, `train` if its file cannot be read."""
    try:
        return "finetune" if read_tree(config).get("kind") == "finetune" else "train"
    except ConfigError:
        return "train"


def _ask(queries: Sequence[tuple[Path, list[str]]], engine: str) -> list[dict[str, Any]]:
    lines = [
        json.dumps({"config": str(config.absolute()), "overrides": overrides})
        for config, overrides in queries
    ]
    done = subprocess.run(
        [sys.executable, "-m", engine, "cost"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or ["nothing was printed"])[-1])
    answers = json.loads(done.stdout)
    if not isinstance(answers, list) or len(answers) != len(lines):
        raise ValueError("other cells were answered than were asked for")
    return answers


def _answer(raw: dict[str, Any]) -> ForecastAnswer:
    if not isinstance(raw.get("gpus"), dict):
        return ForecastAnswer(remark=str(raw.get("error", "no answer")))
    return ForecastAnswer(parameters=raw.get("parameters"), gpus=raw["gpus"])
