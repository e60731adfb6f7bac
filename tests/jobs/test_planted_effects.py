"""A small study, run by the command, finds a slowed cell and refuses an identical one.

In the slowed cell every step of the optimizer waits, in proportion to the time since the last one:
a planted speedup of 1 / (1 + SLOWER). In the identical cell another key has another value which is
known to change nothing. What waits is outside the tree that is tested.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from configs.yaml12 import dump_yaml
from tests.real_runs import DIGITS, clean_environment

# Nine runs, some two minutes of both cores.
pytestmark = pytest.mark.long

SLOWER = 2.0
# The loss does not depend on it; 2 is plain, 3 is slowed, 4 is the same as 2.
INERT = "sample.classes"
WAITS = f"""
import importlib.abc, importlib.util, pathlib, sys, time

def is_slowed():
    runs = [pathlib.Path(word, "config.yaml") for word in sys.orig_argv if "cells/" in word]
    return any(file.is_file() and "  classes: 3\\n" in file.read_text() for file in runs)

class Waits(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch.optim.adamw":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), slow(module.AdamW))
        return spec

def slow(kind):
    step, last = kind.step, time.perf_counter()
    def waiting(*given, **named):
        nonlocal last
        result = step(*given, **named)
        now = time.perf_counter()
        until = now + {SLOWER} * (now - last)
        # Busy, since a core that has rested is faster afterwards.
        while (last := time.perf_counter()) < until:
            pass
        return result
    kind.step = waiting

if is_slowed():
    sys.meta_path.insert(0, Waits())
"""


def waiting_virtualenv(folder: Path) -> Path:
    """Return a copy of the virtualenv of the tests whose torchrun waits."""
    (folder / "bin").mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(WAITS)
    for name in ("python", "torchrun"):
        real = Path(sys.executable).with_name(name)
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{real}" "$@"\n')
        command.chmod(0o755)
    (folder / "bin" / "activate").write_text(
        f'PATH="{folder}/bin:{Path(sys.executable).parent}:$PATH"\n'
    )
    return folder


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """Return the row of `analysis cells` for each cell of the study, by its level."""
    folder = tmp_path_factory.mktemp("planted")
    # Ignore a Slurm that another test runs on this machine.
    (folder / "none").mkdir()
    (folder / "none" / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    (folder / "none" / "sinfo").chmod(0o755)
    study = folder / "planted.yaml"
    study.write_text(
        dump_yaml(
            {
                "kind": "study",
                "question": "Which of three cells differ?",
                "base": str(DIGITS.resolve()),
                "axes": {INERT: [2, 3, 4]},
                "set": {
                    "model.width": 64, "model.depth": 3, "train.steps": 60, "log.every": 2,
                    "log.tensorboard": False, "checkpoint.every": 60, "sample.per_class": 1,
                    "sample.steps": 2, "resources.hours": 0.25, "resources.cpus_per_gpu": 1,
                },
                "repeats": 3,
            }
        )
    )  # fmt: skip
    environment = clean_environment(
        VENV=str(waiting_virtualenv(folder / "venv")), LOGS=str(folder / "logs"),
        PATH=f"{folder / 'none'}{os.pathsep}{os.environ['PATH']}", OMP_NUM_THREADS="1",
    )  # fmt: skip
    done = subprocess.run(
        ["bash", "jobs/study.sh", str(study)],
        env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (logs,) = (folder / "logs").glob("planted-*")
    assert (logs / "report.html").exists()
    assert INERT in (logs / "ablation.txt").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "cells", str(logs), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = json.loads(done.stdout)["cells"]
    assert [row["runs"] for row in rows] == [3, 3, 3]
    return {int(row[INERT]): row for row in rows}


def is_within(row: dict[str, Any], truth: float) -> bool:
    """95 % intervals miss one time in twenty, as they should; two and a half of them do not."""
    half = max(row["speedup_high"] - row["speedup"], row["speedup"] - row["speedup_low"])
    return bool(abs(row["speedup"] - truth) < max(2.5 * half, 0.1 * truth))


def test_the_slowed_cell_is_found_with_its_size(cells: dict[int, dict[str, Any]]) -> None:
    slowed = cells[3]
    assert slowed["speed"] == "slower"
    assert is_within(slowed, 1 / (1 + SLOWER))
    assert slowed["verdict"] == "same loss"


def test_the_identical_cell_is_called_no_difference(cells: dict[int, dict[str, Any]]) -> None:
    same = cells[4]
    assert is_within(same, 1.0)
    assert same["speedup"] > 2 * cells[3]["speedup"]
    assert same["verdict"] == "same loss"
