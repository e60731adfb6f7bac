"""A node with a failed GPU: the requeued job avoids it if enough other nodes are left."""

from __future__ import annotations

import json
import os
import signal

import pytest

from runs.folder import RunFolder
from tests.real_runs import DIGITS, events, processes
from tests.slurm.cluster import wait_until
from tests.slurm.test_pretrain import ENDLESS, ONE, Jobs, end_at

__all__ = ["jobs"]

from tests.slurm.test_pretrain import jobs


def break_gpu(run: RunFolder, node: str) -> None:
    """Write the note of a rank 0 whose GPU reports an error, and kill the ranks."""
    note = {"reason": "node", "rank": 0, "node": node, "message": "uncorrectable ECC error"}
    (run.attempt(run.attempts()[-1]) / "error.json").write_text(json.dumps(note))
    agents = set(processes(run, "torchrun"))
    for pid in set(processes(run, "train")) - agents:
        os.kill(pid, signal.SIGKILL)


def excluded(jobs: Jobs, job: str) -> str:
    """Return the nodes that the job may not start on."""
    shown = jobs.cluster.run("scontrol", "show", "job", "-o", job).stdout
    return shown.partition(" ExcNodeList=")[2].split()[0]


@pytest.mark.long
def test_a_job_comes_back_without_its_faulty_node(jobs: Jobs) -> None:
    job = jobs.submit(DIGITS, *ENDLESS)
    run = jobs.at_step(job, 5)
    (faulty,) = jobs.cluster.nodes(job)
    break_gpu(run, faulty)
    wait_until(lambda: f"{faulty} is faulty: excluded from job {job}" in jobs.output(job))
    end_at(run, 100)
    jobs.cluster.end_requeue_hold(job)
    jobs.cluster.wait(job, timeout=90)
    assert jobs.state(job) == "COMPLETED 0:0", jobs.output(job)
    assert excluded(jobs, job) == faulty
    nodes = [entry["slurm"]["nodelist"] for entry in run.manifest()["attempts"]]
    assert nodes[0] == faulty
    assert nodes[1] in {"a40-1", "a40-2"} - {faulty}
    failed = next(r for r in run.records() if r.get("event") == "failed")
    assert (failed["reason"], failed["node"]) == ("node", faulty)


@pytest.mark.long
@pytest.mark.parametrize("flags", [("--nodes=2", "--gpus-per-node=a40:1"), ONE], ids=["2", "1"])
def test_a_job_keeps_its_faulty_node_if_too_few_others_are_left(
    jobs: Jobs, flags: tuple[str, ...]
) -> None:
    # The job on one node already excludes the other node of its type.
    other = () if "--nodes=2" in flags else ("--exclude=a40-2",)
    job = jobs.submit(DIGITS, *ENDLESS, flags=(*flags, *other))
    run = jobs.at_step(job, 5)
    faulty = jobs.cluster.nodes(job)[0]
    break_gpu(run, faulty)
    wait_until(lambda: "not excluded" in jobs.output(job), timeout=60)
    end_at(run, 100)
    jobs.cluster.end_requeue_hold(job)
    jobs.cluster.wait(job, timeout=90)
    assert jobs.state(job) == "COMPLETED 0:0", jobs.output(job)
    assert events(run)[-1] == "done"
    assert faulty in jobs.cluster.nodes(job)
