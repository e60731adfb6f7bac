"""Pretraining on a real Slurm: two nodes, the time limit, scancel, requeue, a lost node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_runs import DIGITS, events, losses, trained
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.pretrain_jobs import (
    ENDLESS,
    ONE,
    TWO_BY_ONE,
    TWO_BY_TWO,
    Jobs,
    end_at,
    expect_same_curve,
)


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [(TWO_BY_ONE, 2), pytest.param(TWO_BY_TWO, 4, marks=pytest.mark.long)],
    ids=["2 ranks", "4 ranks"],
)
def test_a_warning_of_the_limit_saves_requeues_and_goes_on_to_the_bit(
    jobs: Jobs, flags: tuple[str, ...], ranks: int
) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=flags)
    run = jobs.at_step(job, 20)
    jobs.cluster.warn(job)
    wait_until(lambda: jobs.cluster.restarts(job) == 1, timeout=60)
    assert events(run)[-2:] == ["saved", "paused"]
    end_at(run, max(losses(run)) + 40)
    jobs.cluster.end_requeue_hold(job)
    jobs.cluster.wait(job, timeout=120)
    assert jobs.state(job) == "COMPLETED 0:0", jobs.output(job)
    assert events(run)[-1] == "done"
    assert run.attempts() == [1, 2]
    reference = trained([*ENDLESS, f"train.steps={max(losses(run))}"], ranks=ranks)
    expect_same_curve(run, reference)


@pytest.mark.long
def test_a_real_time_limit_is_survived(jobs: Jobs) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=(*ONE, "--time=10", "--signal=B:USR1@60"))
    run = jobs.at_step(job, 1)
    jobs.cluster.bring_limit_near(job)
    wait_until(lambda: jobs.cluster.restarts(job) == 1, timeout=120)
    paused_at = max(losses(run))
    assert events(run)[-2:] == ["saved", "paused"]
    end_at(run, paused_at + 10)
    jobs.cluster.wait(job, timeout=120)
    assert jobs.state(job) == "COMPLETED 0:0", jobs.output(job)
    assert sorted(losses(run)) == list(range(1, paused_at + 11))


def test_scancel_leaves_a_checkpoint_and_no_requeue(jobs: Jobs) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=TWO_BY_ONE)
    run = jobs.at_step(job, 5)
    jobs.cluster.cancel(job)
    jobs.cluster.wait(job, timeout=60)
    assert jobs.state(job).startswith("CANCELLED")
    wait_until(lambda: events(run)[-1] == "stopped", timeout=30)
    assert events(run)[-2:] == ["saved", "stopped"]
    assert jobs.cluster.restarts(job) == 0


@pytest.fixture
def patient(slurm_installed: None, tmp_path: Path) -> Iterator[Jobs]:
    """Start a Slurm that waits as long as others before it kills what it has told to end."""
    cluster = Cluster.start(tmp_path / "slurm", lines=["KillWait=30"])
    yield Jobs(cluster=cluster, logs=tmp_path)
    cluster.stop()


def test_a_scancel_after_the_ranks_have_paused_is_not_undone_by_the_requeue(patient: Jobs) -> None:
    jobs = patient
    job = jobs.submit(DIGITS, *ENDLESS)
    run = jobs.at_step(job, 1)
    jobs.cluster.warn(job)
    wait_until(lambda: events(run)[-1] == "paused", timeout=60)
    jobs.cluster.cancel(job)
    jobs.cluster.wait(job, "CANCELLED", timeout=60)
    assert "requeueing" not in jobs.output(job)
    assert jobs.cluster.restarts(job) == 0
    assert events(run)[-2:] == ["paused", "stopped"]


def test_a_lost_node_costs_one_save_interval_and_its_lingering_ranks_write_nothing(
    jobs: Jobs,
) -> None:
    # Untyped: the job can restart on another node while the lost node's ranks keep training.
    job = jobs.submit(DIGITS, *ENDLESS, flags=("--nodes=1", "--gpus-per-node=1"))
    run = jobs.at_step(job, 60)
    (lost,) = jobs.cluster.nodes(job)
    jobs.cluster.lose_node(lost)
    try:
        wait_until(lambda: jobs.cluster.restarts(job) == 1, timeout=60)
        jobs.cluster.end_requeue_hold(job)
        jobs.at_step(job, 70, attempt=2)
        assert jobs.cluster.nodes(job) != [lost]
        run.stop_file.touch()
        jobs.cluster.wait(job, timeout=60)
    finally:
        jobs.cluster.restore_node(lost)
    records = list(run.records())
    second = next(i for i, record in enumerate(records) if record["attempt"] == 2)
    assert {record["attempt"] for record in records[second:]} == {2}
    lost_steps = max(r["step"] for r in records[:second] if "step" in r) - records[second]["step"]
    assert 0 <= lost_steps <= run.config().checkpoint.every
    assert events(run)[-2:] == ["saved", "stopped"]
    reference = trained([*ENDLESS, "train.steps=70"])
    expect_same_curve(run, reference)


def test_three_attempts_that_save_nothing_end_the_run_as_failed(jobs: Jobs) -> None:
    job = jobs.submit(DIGITS, *ENDLESS)
    run = jobs.run_of(job)
    for attempt in (1, 2, 3):
        wait_until(lambda number=attempt: run.attempt(number).is_dir(), timeout=60)
        jobs.cluster.requeue(job)
        jobs.cluster.end_requeue_hold(job)
    jobs.cluster.wait(job, timeout=60)
    assert jobs.state(job) == "FAILED 2:0", jobs.output(job)
    assert run.attempts() == [1, 2, 3]
    last = list(run.records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "timeout")
    assert "3 attempts in a row saved nothing new" in jobs.output(job)
