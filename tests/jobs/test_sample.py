"""`jobs/sample.sbatch` without Slurm: killed, stopped, resumed, and refused."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from runs.attempt.open import open_attempt
from runs.folder import RunFolder, find_runs
from tests.jobs.test_encode import ranks_of
from tests.real_runs import (
    TINY,
    body,
    clean_environment,
    events,
    newest_run,
    torchrun,
    trained,
)

# One shard per image: slow enough to be interrupted half-way.
SLOW = ("num=200", "batch=1", "steps=12")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a run on digits."""
    logs = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGS", str(logs))
        return trained(logs, [*TINY, "train.steps=2"])


@pytest.fixture(scope="module")
def whole(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the file that one rank writes without interruption."""
    logs = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGS", str(logs))
        assert open_attempt(run.path, list(SLOW), kind="sample") is not None
    torchrun(newest_run(logs), ranks=1)
    return (newest_run(logs).samples / "images.npz").read_bytes()


def begin(run: RunFolder, logs: Path) -> tuple[subprocess.Popen[str], RunFolder]:
    """Start a sampling job of two agents; return it when it has some, but not all, images."""
    process = subprocess.Popen(
        ["bash", "jobs/sample.sbatch", str(run.path), *SLOW],
        env=clean_environment(LOGS=str(logs), LOCAL_NODES="2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while process.poll() is None and len(list(logs.rglob("0*.npy"))) < 4:
        time.sleep(0.005)
    (begun,) = find_runs(logs)
    return process, begun


@pytest.mark.long
def test_a_job_killed_half_way_continues_to_the_same_bytes(
    run: RunFolder, whole: bytes, tmp_path: Path
) -> None:
    process, begun = begin(run, tmp_path)
    for pid in ranks_of(begun):
        os.kill(pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    assert events(begun)[-1] == "failed"
    kept = len(list(begun.samples.rglob("0*.npy")))
    assert 4 <= kept < 200
    assert not (begun.samples / "images.npz").exists()
    body(begun.path, logs=tmp_path, job="sample", LOCAL_NODES="2")
    again = [record for record in begun.records() if record["attempt"] == 2]
    assert (again[0]["event"], again[0]["step"]) == ("started", kept)
    assert (again[-1]["event"], again[-1]["images"]) == ("done", 200)
    assert (begun.samples / "images.npz").read_bytes() == whole
    done = body(begun.path, logs=tmp_path, job="sample")
    assert "done already" in done.stderr


def test_a_run_without_a_checkpoint_fails_for_its_config(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "untrained").mkdir()
    (tmp_path / "untrained/config.yaml").write_bytes(run.config_file.read_bytes())
    done = body(tmp_path / "untrained", logs=tmp_path / "logs", job="sample", check=False)
    assert done.returncode == 1
    last = list(newest_run(tmp_path / "logs").records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "config")
    assert "no checkpoint yet; train the run first" in last["message"]
