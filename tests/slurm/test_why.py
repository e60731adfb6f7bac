"""`launch why` on every end that a real Slurm can produce.

Ends that need GPUs or a cgroup use recorded logs, in tests/corpus.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real_runs import DIGITS
from tests.slurm.cluster import wait_until
from tests.slurm.pretrain_jobs import ENDLESS, ONE, TWO_BY_TWO, Jobs

# The ranks get no warning before the end: they ignore URG.
UNWARNED = ("--signal=B:URG@10",)
PYTHON = (sys.executable, "-m", "launch", "why")


Why = Callable[..., dict[str, Any]]


@pytest.fixture
def why(jobs: Jobs) -> Why:
    """Return a function that diagnoses an attempt of a run or job, the newest by default."""

    def ask(name: Path | str, *, attempt: int = -1, **environment: str) -> dict[str, Any]:
        answer = jobs.cluster.run(
            *PYTHON, str(name), "--json", env=jobs.environment | environment, check=False
        )
        assert answer.stdout, answer.stderr
        return json.loads(answer.stdout)[attempt]

    return ask


def evidence(diagnosis: dict[str, Any]) -> str:
    return "\n".join(diagnosis["evidence"])


@pytest.mark.long
def test_a_time_limit(jobs: Jobs, why: Why, without_sacct: dict[str, str]) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=(*ONE, *UNWARNED))
    run = jobs.at_step(job, 5)
    jobs.cluster.bring_limit_near(job, seconds=2)
    jobs.cluster.wait(job, timeout=90)
    jobs.state(job)
    found = why(run.path)
    assert found["cause"] == "time limit"
    assert "DUE TO TIME LIMIT" in evidence(found)
    assert f"pretrain-{job}.out:" in evidence(found)
    assert found["next"].startswith(f"ditbench submit {run.path}")
    assert why(run.path, **without_sacct)["cause"] == "time limit"


def test_a_warning_of_the_limit_is_a_time_limit(jobs: Jobs, why: Why) -> None:
    job = jobs.submit(DIGITS, *ENDLESS)
    run = jobs.at_step(job, 5)
    jobs.cluster.bring_limit_near(job, seconds=120)
    jobs.cluster.warn(job)
    wait_until(lambda: jobs.cluster.state(job) == "PENDING", timeout=60)
    found = why(run.path, attempt=0)
    assert found["cause"] == "time limit"
    assert "before the limit" in evidence(found)
    assert f"is queued again (job {job}" in found["what"]
    assert found["next"] == f"nothing; ditbench status {run.path}"
    wait_until(lambda: jobs.cluster.restarts(job) == 1, timeout=60)
    assert why(run.path, attempt=0)["cause"] == "time limit"


@pytest.mark.long
def test_a_warning_far_from_the_limit_is_a_request_to_pause(jobs: Jobs, why: Why) -> None:
    job = jobs.submit(DIGITS, *ENDLESS)
    run = jobs.at_step(job, 5)
    jobs.cluster.warn(job)
    wait_until(lambda: jobs.cluster.restarts(job) == 1, timeout=60)
    assert why(run.path, attempt=0)["cause"] == "asked to pause"


@pytest.mark.long
def test_scancel(jobs: Jobs, why: Why, without_sacct: dict[str, str]) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=TWO_BY_TWO)
    run = jobs.at_step(job, 5)
    jobs.cluster.cancel(job)
    jobs.cluster.wait(job)
    wait_until(lambda: "stopped" in run.metrics_file.read_text(), timeout=30)
    found = why(run.path)
    assert found["cause"] == "scancel"
    assert "it saved at step" in found["what"]
    assert why(job)["run"] == str(run.path)
    assert why(run.path, **without_sacct)["cause"] == "scancel"


@pytest.mark.long
@pytest.mark.usefixtures("several_jobs")
def test_preemption(jobs: Jobs, why: Why) -> None:
    node = ("--nodelist=a40-1", "--gpus-per-node=2")
    job = jobs.submit(DIGITS, *ENDLESS, flags=("--partition=preempt", *node))
    run = jobs.at_step(job, 5)
    jobs.cluster.submit(
        "--partition=high", *node, "--output=/dev/null", script="sleep 120", cwd=jobs.logs
    )
    wait_until(lambda: jobs.cluster.restarts(job) == 1, timeout=90)
    found = why(run.path, attempt=0)
    assert found["cause"] == "preemption"
    # Slurm requeues it if its own requeue takes longer than the grace.
    assert re.search("partition preempt is preemptable|PREEMPTED", evidence(found))


@pytest.mark.long
def test_a_requeue_by_hand_without_a_warning(jobs: Jobs, why: Why) -> None:
    job = jobs.submit(DIGITS, *ENDLESS)
    run = jobs.at_step(job, 60)
    jobs.cluster.requeue(job)
    jobs.cluster.end_requeue_hold(job)
    wait_until(lambda: run.attempts() == [1, 2], timeout=60)
    found = why(run.path, attempt=0)
    assert found["cause"] == "requeue"
    assert "DUE TO JOB REQUEUE" in evidence(found)


@pytest.mark.long
def test_a_lost_node(jobs: Jobs, why: Why, without_sacct: dict[str, str]) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=(*ONE, "--no-requeue"))
    run = jobs.at_step(job, 5)
    (node,) = jobs.cluster.nodes(job)
    jobs.cluster.lose_node(node, tasks="die")
    try:
        jobs.cluster.wait(job)
        found = why(run.path)
        assert found["cause"] == "node failure"
        assert "NODE_FAIL" in evidence(found)
        assert f"--exclude={node}" in found["next"]
        assert why(run.path, **without_sacct)["cause"] == "node failure"
    finally:
        jobs.cluster.restore_node(node)


def pids_of(job: str) -> list[int]:
    """Return the pids of the ranks of a job's run, without their agent."""
    ps = ["ps", "-eww", "-o", "pid,args"]
    listed = subprocess.run(ps, capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=1) for line in listed.stdout.splitlines()]
    return [int(p) for p, args in rows if f"-{job} --attempt" in args and "torchrun" not in args]


def ranks_of(job: str) -> dict[int, int]:
    """Return the pid of each rank."""
    environments = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in pids_of(job)}
    return {int(text.split(b"\0RANK=")[1].split(b"\0")[0]): p for p, text in environments.items()}


@pytest.mark.long
def test_a_rank_that_hangs(jobs: Jobs, why: Why) -> None:
    flags = ("--nodes=1", "--gpus-per-node=2")
    job = jobs.submit(DIGITS, *ENDLESS, "train.hang_s=5", flags=flags)
    run = jobs.at_step(job, 20)
    os.kill(ranks_of(job)[1], signal.SIGSTOP)
    wait_until(lambda: "failed" in run.metrics_file.read_text(), timeout=90, what=jobs.output(job))
    found = why(run.path, attempt=0)
    assert (found["cause"], found["first_failure"].split(" on ")[0]) == ("hang", "rank 1")


def test_a_killed_rank_is_distinguished_from_those_that_lost_it(jobs: Jobs, why: Why) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=("--nodes=1", "--gpus-per-node=2"))
    run = jobs.at_step(job, 5)
    os.kill(ranks_of(job)[1], signal.SIGKILL)
    jobs.cluster.wait(job)
    found = why(run.path)
    rank = found.get("first_failure", "").split(" on ")[0]
    assert (found["cause"], rank) == ("killed", "rank 1"), found
    assert "Signal 9 (SIGKILL) received by PID" in evidence(found)


def test_an_exit_with_0_without_a_record(jobs: Jobs, why: Why, tmp_path: Path) -> None:
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (venv / "torchrun").write_text("#!/bin/sh\nexit 0\n")
    (venv / "activate").write_text(f'PATH="{venv}:$PATH"\n')
    for name in ("python", "torchrun"):
        (venv / name).chmod(0o755)
    job = jobs.cluster.submit(
        "--cpus-per-task=1", f"--output={jobs.logs}/%x-%j.out", *ONE, "jobs/pretrain.sbatch",
        str(DIGITS), *ENDLESS, cwd=Path.cwd(), env=jobs.environment | {"VENV": str(venv.parent)},
    )  # fmt: skip
    jobs.cluster.wait(job)
    assert why(jobs.run_of(job).path)["cause"] == "exit 0 without done"


def test_a_job_that_waits_and_one_that_runs(jobs: Jobs, why: Why) -> None:
    job = jobs.submit(DIGITS, *ENDLESS)
    run = jobs.at_step(job, 2)
    running = why(run.path)
    assert "cause" not in running
    assert running["what"] == "has not ended"
    assert running["next"] == f"ditbench tail {run.path}"
