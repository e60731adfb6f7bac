"""Ask `python -m train cost` for the memory and step time of configs."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from configs.load import to_tree
from configs.schema import Pretrain
from runs.folder import ROOT

# A config is refused only if its tensors alone exceed the GPU by this factor.
MARGIN = 1.1


@dataclass(frozen=True, kw_only=True)
class ForecastAnswer:
    """Memory and times by GPU of one config; `remark` says why they are missing."""

    gpus: dict[str, dict[str, Any]] = field(default_factory=dict)
    remark: str = ""

    def too_large(self) -> str | None:
        """Return the reason if the config clearly fits on none of its GPUs."""
        reasons = [
            f"{name}: {gpu['reason']}; would fit: {gpu['fix']}"
            for name, gpu in self.gpus.items()
            if not gpu["fits"] and gpu["gib"]["peak"] > MARGIN * gpu["capacity_gib"]
        ]
        return reasons[0] if reasons and len(reasons) == len(self.gpus) else None


def ask(configs: Sequence[Pretrain]) -> list[ForecastAnswer]:
    """Return an answer per config, by one process."""
    try:
        return [
            ForecastAnswer(gpus=raw.get("gpus", {}), remark=raw.get("error", ""))
            for raw in (_ask(configs) if configs else ())
        ]
    except (OSError, ValueError) as error:
        return [ForecastAnswer(remark=str(error)) for _ in configs]


def _ask(configs: Sequence[Pretrain]) -> list[dict[str, Any]]:
    lines = [json.dumps(to_tree(config)) for config in configs]
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
