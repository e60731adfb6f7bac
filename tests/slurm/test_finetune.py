"""Fine-tuning on a real Slurm: after its time limit it continues with identical losses."""

from pathlib import Path

import pytest

from finetune.tiny_flux import make_tiny_flux
from tests.finetune.conftest import QUICK, TINY, paths, run_attempt
from tests.real_runs import events, losses
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.pretrain_jobs import ONE, Jobs, end_at

# Slow steps, so that a reference can be trained up to where Slurm interrupts.
SLOW = (
    "train.steps=100000", "train.global_batch=8", "train.micro_batch=1", "sample.every=null",
    "validation.every=null", "checkpoint.every=1000",
)  # fmt: skip


@pytest.fixture
def tunes(cluster: Cluster, tmp_path: Path) -> Jobs:
    """Return fine-tuning jobs, with a tiny Flux for them in `flux`."""
    logs = tmp_path / "logs"
    logs.mkdir()
    make_tiny_flux(tmp_path / "flux")
    return Jobs(cluster=cluster, logs=logs, kind="finetune")


def overrides(tunes: Jobs) -> list[str]:
    return [*paths(tunes.logs.parent / "flux"), *QUICK, *SLOW]


def expect_identical_continuation(tunes: Jobs, job: str) -> None:
    """Check that the interrupted job is requeued and has the losses of an uninterrupted run."""
    run = tunes.run_of(job)
    wait_until(lambda: tunes.cluster.restarts(job) == 1, timeout=120)
    assert events(run)[-2:] == ["saved", "paused"]
    end_at(run, max(losses(run)) + 5)
    tunes.cluster.end_requeue_hold(job)
    tunes.cluster.wait(job, timeout=120)
    assert tunes.state(job) == "COMPLETED 0:0", tunes.output(job)
    assert run.attempts() == [1, 2]
    found = losses(run)
    assert sorted(found) == list(range(1, max(found) + 1))
    whole = run_attempt(TINY, [*overrides(tunes), f"train.steps={max(found)}"])
    assert losses(whole) == found


@pytest.mark.long
def test_a_warned_fine_tuning_saves_is_requeued_and_goes_on_to_the_bit(tunes: Jobs) -> None:
    job = tunes.submit(TINY, *overrides(tunes), flags=ONE)
    tunes.at_step(job, 5)
    tunes.cluster.warn(job)
    expect_identical_continuation(tunes, job)
