"""Where the hours of runs went, as `python -m analysis cost` has it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.run.folder import ROOT
from launch.slurm.client import Refused
from launch.table import Row


def ledger(paths: Sequence[Path]) -> list[Row]:
    """A row per run that has begun: the hours allocated to it, by what they went to."""
    command = [
        sys.executable,
        "-m",
        "analysis",
        "cost",
        "--json",
        *(str(p.resolve()) for p in paths),
    ]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    try:
        found = list(json.loads(answer.stdout)["hours"])
    except (ValueError, KeyError):
        raise Refused(f"the hours are not known: {answer.stderr.strip()}") from None
    heads = dict.fromkeys(name for row in found for name in row)
    return [{name: row.get(name) for name in heads} for row in found]
