"""The hours allocated to runs by use, as `ditbench cost` reports them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.run.folder import ROOT
from configs.table import Row
from launch.slurm.client import Refused


def hours_by_use(paths: Sequence[Path]) -> list[Row]:
    """Return a row per started run with its allocated hours by use."""
    command = [sys.executable, "-m", "analysis", "cost", "--json"]
    answer = subprocess.run(
        [*command, *(str(path.resolve()) for path in paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    try:
        return list(json.loads(answer.stdout)["hours"])
    except (ValueError, KeyError):
        raise Refused(f"the hours are unknown: {answer.stderr.strip()}") from None
