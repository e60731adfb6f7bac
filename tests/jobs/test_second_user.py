"""A user who shares the machine with a run cannot run code in it."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.folder import RunFolder, find_runs
from tests.real_runs import DIGITS, TINY, clean_environment, processes
from tests.stranger import attack, listening_ports

KEYS = (*TINY, "train.steps=100000", "log.every=1", "checkpoint.every=20")


@pytest.fixture(
    params=[
        pytest.param(1, id="one-rank", marks=pytest.mark.long),
        pytest.param(2, id="two-nodes"),
    ]
)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that trains until the test ends, on one machine."""
    process = subprocess.Popen(
        ["bash", "jobs/pretrain.sbatch", str(DIGITS), *KEYS],
        env=clean_environment(LOGS=str(tmp_path), LOCAL_NODES=str(request.param)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    for run in find_runs(tmp_path):
        run.stop_file.touch()
    process.communicate(timeout=60)


def wait_for_save(job: subprocess.Popen[str], logs: Path, *, count: int) -> RunFolder:
    """Wait until the only run has saved `count` times."""
    while job.poll() is None:
        for run in find_runs(logs):
            if sum(record.get("event") == "saved" for record in run.records()) >= count:
                return run
        time.sleep(0.05)
    raise AssertionError("the job has ended")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_second_user_finds_no_store_and_plants_no_code(
    job: subprocess.Popen[str], tmp_path: Path
) -> None:
    run, marker = wait_for_save(job, tmp_path, count=1), tmp_path / "code-of-another-user-ran"
    ports = listening_ports(processes(run, "--attempt"))
    stores = attack(marker, ports)
    assert not marker.exists(), stores
    assert stores == []
    saves = sum(record.get("event") == "saved" for record in run.records())
    wait_for_save(job, tmp_path, count=saves + 2)
    assert not marker.exists()
