"""A rank that hangs ends the attempt within a few steps; it is named, and all stacks are kept."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from runs.attempt.close import close_attempt
from tests.real_runs import DIGITS, TINY, clean_environment, opened
from tests.slurm.cluster import wait_until
from train.engine.distributed import Ranks
from train.engine.watchdog import HangWatchdog

KEYS = [
    *TINY,
    "train.global_batch=18",
    "train.steps=1000000",
    "checkpoint.every=50",
    "log.every=1",
    "train.hang_s=6.0",
]


def rank_pids(agent: int) -> list[int]:
    """The process ids of an agent's ranks, in order."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(agent)], capture_output=True, text=True, check=False
    )
    ranks = {}
    for pid in map(int, listed.stdout.split()):
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        variables = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
        ranks[int(variables[b"RANK"])] = pid
    return [ranks[rank] for rank in sorted(ranks)]


def test_a_suspended_rank_is_named_and_the_attempt_ends() -> None:
    run = opened(DIGITS, KEYS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    agent = subprocess.Popen(
        [*command, "-m", "train", str(run.path)],
        env=clean_environment(OMP_NUM_THREADS="1", PYTHONPATH=str(Path.cwd())),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((run.checkpoints / "latest").exists, timeout=240, what="a save")
        os.kill(rank_pids(agent.pid)[1], signal.SIGSTOP)
        begin = time.monotonic()
        assert agent.wait(timeout=180) != 0
        took = time.monotonic() - begin
    finally:
        agent.kill()
    assert close_attempt(run.attempt(1), status=1).event == "failed"
    last = list(run.records())[-1]
    assert (last["reason"], last["rank"]) == ("hang", 1)
    assert "rank 1 on " in last["message"]
    assert " hangs at step " in last["message"]
    stacks = sorted((run.attempt(1) / "ranks").glob("stack-*.txt"))
    assert [file.name for file in stacks] == [f"stack-{rank:05d}.txt" for rank in range(3)]
    assert all("train/engine/loop.py" in file.read_text() for file in stacks)
    # torchrun gives the other ranks 30 s to end.
    assert took < 6 + 3 + 8 + 5 + 30 + 30
    assert json.loads((run.attempt(1) / "error.json").read_text())["reason"] == "hang"


@pytest.fixture
def watchdog(tmp_path: Path):
    (tmp_path / "ranks").mkdir()
    alone = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=None)
    watchdog = HangWatchdog(tmp_path, ranks=alone, least_s=0.5)
    yield watchdog
    watchdog.close()


def test_the_limit_is_five_median_steps_once_two_are_timed(watchdog: HangWatchdog) -> None:
    assert watchdog.limit() > 600
    watchdog._durations.extend([0.05, 0.05, 9.0])
    assert watchdog.limit() == 0.5
    watchdog._durations.extend([0.3, 0.3, 0.3])
    assert watchdog.limit() == pytest.approx(1.5)


def test_between_steps_there_is_no_limit(watchdog: HangWatchdog) -> None:
    watchdog._durations.extend([0.01, 0.01])
    watchdog.begin_step(7)
    watchdog.disarm()
    # A watchdog that fires would end this process.
    time.sleep(1.5)
    assert (watchdog._attempt / "error.json").exists() is False


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_with_the_stacks_go_the_newest_collectives_of_nccl(
    device: str, watchdog: HangWatchdog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "ranks" / "nccl-"))
    here = Ranks(rank=3, world=4, local_rank=3, local_world=4, device=torch.device(device))
    monkeypatch.setattr(watchdog, "_ranks", here)
    watchdog._dump_collectives()
    dumps = list((tmp_path / "ranks").glob("nccl-*"))
    assert [file.name for file in dumps] == (["nccl-3"] if device == "cuda" else [])
    # The format of torch's own dump, which torchfrtrace reads.
    assert all("pg_config" in pickle.loads(file.read_bytes()) for file in dumps)
