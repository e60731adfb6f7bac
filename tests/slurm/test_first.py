"""One run, queued on several GPU types of a real Slurm: the first job that starts trains it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.test_launch import SMALLEST, Checkout, copy_tree, events, manifest

FIRST = ("--first", "a40:1x2,a100:1x1", "resources.hours=0.5", "resources.cpus_per_gpu=1")


@pytest.fixture(scope="module")
def checkout(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    folder = tmp_path_factory.mktemp("first")
    root = folder / "a 'tree' $(touch hacked)"
    copy_tree(root)
    return Checkout(root=root, logs=folder / "lo gs; #%j", cluster=cluster)


def submit(checkout: Checkout, *words: str) -> tuple[Path, list[str]]:
    """Queue digits on an A40 or an A100; return the run and its jobs."""
    done = checkout.launch("submit", "configs/pretrain/digits.yaml", *SMALLEST, *FIRST, *words)
    run, *jobs = (line.partition(": ")[2] for line in done.stdout.splitlines())
    return Path(run), [job.partition(" ")[0] for job in jobs]


def occupy(cluster: Cluster, *nodes: str) -> list[str]:
    """Fill nodes until the jobs are cancelled."""
    jobs = [
        cluster.submit(f"-w{node}", "--exclusive", "--output=/dev/null", script="sleep 600")
        for node in nodes
    ]
    for job in jobs:
        cluster.wait(job, "RUNNING")
    return jobs


def steps(run: Path, *, attempt: int) -> list[int]:
    """Return the steps that an attempt recorded."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [one["step"] for one in records if one["attempt"] == attempt and "loss" in one]


def test_the_job_on_the_free_nodes_trains_and_the_waiting_one_is_cancelled(
    checkout: Checkout, cluster: Cluster
) -> None:
    occupy(cluster, "a40-1", "a40-2")
    run, (a40, a100) = submit(checkout)
    cluster.wait(a100, "COMPLETED", timeout=180)
    assert cluster.wait(a40) == "CANCELLED"
    assert events(run) == ["queued", "started", "saved", "done"]
    facts = manifest(run)
    assert (facts["alternative"], facts["slurm"]["job"]) == ("a100:1x1", a100)
    assert len(facts["placement"]) == 1
    assert checkout.status(run)["job"] == a100


@pytest.mark.long
def test_of_two_jobs_that_start_together_one_trains_and_the_other_ends_well(
    checkout: Checkout, cluster: Cluster
) -> None:
    occupied = occupy(cluster, "a40-1", "a40-2", "a100-1", "a100-2")
    run, jobs = submit(checkout)
    cluster.cancel(*occupied)
    wait_until(lambda: events(run)[-1] == "done", timeout=180, what="the run to be done")
    for job in jobs:
        # The loser was cancelled as it waited, or found the claim.
        assert cluster.wait(job) in ("COMPLETED", "CANCELLED")
    assert events(run) == ["queued", "started", "saved", "done"]
    assert manifest(run)["slurm"]["job"] in jobs


@pytest.mark.long
def test_a_requeued_winner_goes_on_and_after_scancel_the_run_is_free(
    checkout: Checkout, cluster: Cluster
) -> None:
    occupy(cluster, "a100-1", "a100-2")
    run, (a40, a100) = submit(
        checkout, "train.steps=1000000", "checkpoint.every=1000000", "log.every=1"
    )
    wait_until(lambda: "started" in events(run), timeout=180, what="the run to start")
    cluster.warn(a40)
    cluster.end_requeue_hold(a40)
    wait_until(lambda: steps(run, attempt=2), timeout=180, what="a step of the second start")
    assert cluster.state(a100) == "CANCELLED"
    cluster.cancel(a40)
    cluster.wait(a40)
    assert events(run) == ["queued", "started", "saved", "paused", "started", "saved", "stopped"]
    attempts = json.loads((run / "manifest.json").read_text())["attempts"]
    assert [one["slurm"]["job"] for one in attempts] == [a40, a40]
    _, job = checkout.submit(run, f"train.steps={steps(run, attempt=2)[-1] + 2}")
    cluster.wait(job, "COMPLETED", timeout=180)
    assert events(run)[-3:] == ["started", "saved", "done"]


def occupy_a40_for_90_minutes(cluster: Cluster) -> None:
    for node in ("a40-1", "a40-2"):
        words = (f"-w{node}", "--exclusive", "--time=90", "--output=/dev/null")
        cluster.wait(cluster.submit(*words, script="sleep 600"), "RUNNING")


def test_when_of_a_study_asks_for_each_array_on_each_type(
    checkout: Checkout, cluster: Cluster
) -> None:
    occupy_a40_for_90_minutes(cluster)
    config = "configs/pretrain/digits.yaml"
    words = ("train.global_batch=32,64", "resources.gpus_per_node=1,2", "repeats=3", "throttle=2")
    found = checkout.launch("when", config, *words, "--json")
    rows = json.loads(found.stdout)
    assert [row["shape"] for row in rows[::3]] == ["study on a100", "study on a40"]
    assert [row["at_once"] for row in rows if "at_once" in row] == [2, 2, 2, 2]
    for total, *arrays in (rows[:3], rows[3:]):
        assert (total["runs"], [row["runs"] for row in arrays]) == (12, [6, 6])
        assert total["finish"] == max(row["finish"] for row in arrays)
    assert abs(rows[0]["start"] - time.time()) < 60
    assert rows[3]["start"] - time.time() > 80 * 60
    assert (
        f"queue it: ditbench submit {config} {' '.join(words)} resources.gpu=a100" in found.stderr
    )


def test_when_and_hours_auto_ask_this_cluster(checkout: Checkout, cluster: Cluster) -> None:
    occupy_a40_for_90_minutes(cluster)
    config = "configs/pretrain/digits.yaml"
    steps = ("train.steps=100000", "checkpoint.every=100000")
    found = checkout.launch("when", config, *steps, "--json")
    rows = json.loads(found.stdout)
    assert {row["shape"].partition(":")[0] for row in rows[:3]} == {"a100"}
    assert {row["shape"] for row in rows} >= {"a40:1x1", "a40:1x2", "a40:2x2", "a100:2x2"}
    assert abs(rows[0]["start"] - time.time()) < 60
    assert rows[-1]["start"] - time.time() > 80 * 60
    assert "--first a100:" in found.stderr
    words = ("resources.gpu=a100", "resources.hours=auto", "train.steps=100000000")
    _, job = checkout.submit(config, *words, "--", "--hold")
    shown = cluster.run("scontrol", "show", "job", job).stdout
    limit, least = (shown.partition(f"{name}=")[2].split()[0] for name in ("TimeLimit", "TimeMin"))
    assert (limit, least) == ("2-00:00:00", "00:20:00")
