"""A node with a failed GPU: the requeued job avoids it if enough other nodes are left."""

import json
import os
import signal

import pytest

from runs.folder import RunFolder
from tests.real_runs import DIGITS, rank_processes
from tests.slurm.cluster import wait_until
from tests.slurm.pretrain_jobs import ENDLESS, Jobs, end_at


def break_gpu(run: RunFolder, node: str) -> None:
    """Write the note of a rank 0 whose GPU reports an error, and kill the ranks."""
    note = {"reason": "node", "rank": 0, "node": node, "message": "uncorrectable ECC error"}
    (run.attempt(run.attempts()[-1]) / "error.json").write_text(json.dumps(note))
    for pid in rank_processes(run):
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
