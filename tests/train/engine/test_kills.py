"""A run that is killed again and again, in steps or saves, has the losses of one that is not."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from tests.real_runs import DIGITS, TINY, clean_environment, losses, opened, trained

KEYS = [*TINY, "log.every=1", "checkpoint.every=3", "optimizer.decay=0.0", "data.workers=0"]


def killed(run: RunFolder, *, ranks: int, steps: int, after_s: float) -> bool:
    """Kill one attempt `after_s` after its first four steps; return whether it still ran."""
    attempt = open_attempt(run.path, [f"train.steps={steps}"])
    if attempt is None:
        return False
    agent = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={ranks}", "-m", "train", str(run.path)),
        ],
        env=clean_environment(OMP_NUM_THREADS="1", PYTHONPATH=str(Path.cwd())),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    before = _steps(run)
    # Every attempt saves once, or is killed while saving.
    while agent.poll() is None and _steps(run) < before + 4:
        time.sleep(0.02)
    time.sleep(after_s)
    was_killed = agent.poll() is None
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(agent.pid)], capture_output=True, text=True, check=False
    )
    for pid in (agent.pid, *map(int, listed.stdout.split())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    agent.wait()
    return was_killed


def _steps(run: RunFolder) -> int:
    """The number of recorded steps; repeated steps count again."""
    if not run.metrics_file.exists():
        return 0
    return run.metrics_file.read_bytes().count(b'"loss"')


def survive(*, kills: int, ranks: int, steps: int) -> None:
    chance = random.Random(kills * 10 + ranks)
    run = opened(DIGITS, [*KEYS, f"train.steps={steps}"])
    done = sum(
        killed(run, ranks=ranks, steps=steps, after_s=chance.uniform(0, 0.6)) for _ in range(kills)
    )
    assert done >= kills * 0.9
    newest = (run.checkpoints / "latest").read_text().strip()
    reached = int(newest.removeprefix("step-"))
    assert reached > 0
    reference = trained([*KEYS, f"train.steps={max(losses(run))}"], ranks=ranks)
    expected = losses(reference)
    found = losses(run)
    assert {step: found[step] for step in found} == {step: expected[step] for step in found}
    assert sorted(found) == list(range(1, max(found) + 1))


def test_two_kills_change_no_loss() -> None:
    survive(kills=2, ranks=2, steps=100_000)


@pytest.mark.long
def test_200_kills_change_no_loss() -> None:
    survive(kills=200, ranks=1, steps=100_000)
