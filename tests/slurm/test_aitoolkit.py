"""The unmodified ai-toolkit on a real Slurm, stopped by its time limit and resumed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from configs.disk import replace_file
from finetune.tiny_flux import make_tiny_flux
from runs.folder import RunFolder, find_runs
from runs.records import valid
from tests.finetune.aitoolkit_runs import events, steps, write_job
from tests.slurm.cluster import Cluster, wait_until

AI_TOOLKIT = os.environ.get("AI_TOOLKIT", "")


@pytest.mark.long
@pytest.mark.skipif(not AI_TOOLKIT, reason="AI_TOOLKIT names no checkout of ai-toolkit")
def test_a_time_limit_saves_and_requeues_it_and_it_goes_on_from_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    make_tiny_flux(tmp_path / "tiny")
    job_file = write_job(tmp_path / "job.yaml", tmp_path / "tiny")
    logs = tmp_path / "logs"
    logs.mkdir()
    environment = {
        "VENV": sys.prefix, "SITE": "local", "LOGS": str(logs), "AI_TOOLKIT": AI_TOOLKIT,
        "OMP_WAIT_POLICY": "passive",
    }  # fmt: skip
    job = cluster.submit(
        "--cpus-per-task=1", "--time=10", f"--output={logs}/%x-%j.out", "--nodes=1",
        "--gpus-per-node=a40:1", "jobs/finetune.sbatch", str(job_file), "engine=aitoolkit",
        "train.steps=100000", "checkpoint.every=1000", "sample.every=null",
        cwd=Path.cwd(), env=environment,
    )  # fmt: skip
    wait_until(lambda: find_runs(logs), timeout=60, what="a run")
    run: RunFolder = find_runs(logs)[0]
    wait_until(
        lambda: any(record["step"] >= 5 for record in steps(run)), timeout=150, what="step 5"
    )
    cluster.bring_limit_near(job)
    wait_until(lambda: events(run, "paused"), timeout=90, what="a save at the time limit")
    at = events(run, "paused")[0]["step"]
    assert at == events(run, "saved")[0]["step"] >= 5
    # Like an override of train.steps.
    replace_file(run.attempt(1) / "overrides.yaml", f"train: {{steps: {at + 4}}}\n")
    wait_until(lambda: cluster.state(job) == "PENDING", timeout=60, what="its requeue")
    # The shortened limit would persist, and the next start would be warned at once.
    cluster.run("scontrol", "update", f"jobid={job}", "TimeLimit=10")
    cluster.end_requeue_hold(job)
    cluster.wait(job, "COMPLETED", timeout=200)
    assert cluster.restarts(job) == 1
    assert events(run, "started")[1]["step"] == at
    assert events(run, "done")[0]["step"] == at + 4
    stands = [r for r in valid(run.records()) if "drawn_images" not in r]
    assert sorted(r["step"] for r in stands) == list(range(1, at + 5))
