"""The cost of planning and submitting a study against a loop of sbatch calls, on its own Slurm.

Each round plans and submits one study (folders, configs, one array per shape, a report), and
submits as many plain jobs one by one; all are held, then cancelled. The ratio is taken round by
round and reported as median and quartiles.

python -m benchmarks.plan [--cells 400] [--rounds 5]      (needs env/slurm/install)
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.interleave import Stopwatch, interleave, ratio
from configs.yaml12 import dump_yaml
from runs.folder import ROOT
from tests.slurm.cluster import Cluster


class StudyArms:
    """A study on a Slurm, and the two ways to submit its runs."""

    def __init__(self, cluster: Cluster, folder: Path, *, cells: int) -> None:
        self._cluster, self._logs, self._cells = cluster, folder / "logs", cells
        self._study = folder / "grid.yaml"
        self._logs.mkdir()
        half = cells // 2
        tree = {
            "kind": "study",
            "base": str(ROOT / "configs" / "pretrain" / "digits.yaml"),
            "axes": {
                "resources.gpu": ["a40", "a100"],
                "optimizer.lr": [round(1e-5 * (number + 1), 9) for number in range(half)],
            },
            "set": {"resources.cpus_per_gpu": 1, "resources.hours": 0.5},
        }
        self._study.write_text(dump_yaml(tree))

    def plan(self) -> None:
        """List the cells with the forecast."""
        self._launch("submit", self._study, "--dry-run")

    def submit(self) -> None:
        """Submit the study: plan, folders, arrays and report."""
        self._launch("submit", self._study, "--new", "--", "--hold")

    def loop(self) -> None:
        """Call sbatch once per run: no folder, no plan, no report."""
        for number in range(self._cells):
            gpu = ("a40", "a100")[number % 2]
            self._cluster.submit(
                "--hold", f"--gpus-per-node={gpu}:1", "--time=30", "--cpus-per-task=1",
                "jobs/pretrain.sbatch", "configs/pretrain/digits.yaml",
                f"optimizer.lr={1e-5 * (number // 2 + 1)}", cwd=ROOT,
            )  # fmt: skip

    def clear(self) -> None:
        """Delete the jobs and folders before the next arm."""
        self._cluster.clear()
        for path in self._logs.iterdir():
            if path.name != ".code":
                shutil.rmtree(path)

    def _launch(self, *words: str | Path) -> None:
        environment = {"LOGS": str(self._logs), "SITE": "local", "VENV": sys.prefix}
        command = (sys.executable, "-m", "launch", *words)
        self._cluster.run(*command, cwd=ROOT, env=environment, timeout=300)


class Timed(Stopwatch):
    """Measures an arm without the clean-up after it."""

    def __init__(self, arms: StudyArms) -> None:
        super().__init__(clock="wall", device=torch.device("cpu"))
        self._arms = arms

    def time(self, arm: object) -> float:
        """Run `arm` and return its seconds; then clean up."""
        assert callable(arm)
        begin = time.perf_counter()
        arm()
        seconds = time.perf_counter() - begin
        self._arms.clear()
        return seconds


def measure(*, cells: int, rounds: int) -> dict[str, object]:
    """Return the seconds of each arm (median and quartiles) and the ratio loop / study."""
    with tempfile.TemporaryDirectory(prefix="ditbench-") as folder:
        cluster = Cluster.start(Path(folder) / "slurm")
        try:
            study = StudyArms(cluster, Path(folder), cells=cells)
            arms = {"plan": study.plan, "submit": study.submit, "loop of sbatch": study.loop}
            seconds = interleave(arms, rounds=rounds, warmup=1, watch=Timed(study))
        finally:
            cluster.stop()
    once = ratio("loop / submit", seconds["loop of sbatch"], seconds["submit"])
    return {
        "cells": cells,
        "rounds": rounds,
        "seconds": {name: _spread(each) for name, each in seconds.items()},
        once.name: [round(value, 3) for value in (once.low, once.median, once.high)],
    }


def _spread(seconds: list[float]) -> list[float]:
    quartiles = statistics.quantiles(seconds, n=4, method="inclusive")
    return [round(value, 3) for value in quartiles]


def main() -> None:
    """Measure and print JSON; figures are [lower quartile, median, upper quartile]."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--cells", type=int, default=400)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    print(json.dumps(measure(cells=chosen.cells, rounds=chosen.rounds), indent=1))


if __name__ == "__main__":
    main()
