"""Every way to end a job, on 1 and 4 ranks: the run ends or resumes with identical losses."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import DIGITS, events, losses, processes, rank_processes, trained
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.pretrain_jobs import ENDLESS, ONE, TWO_BY_TWO, Jobs, end_at, expect_same_curve

REFERENCE_STEPS = 400
FLAGS = {1: ONE, 4: TWO_BY_TWO}


@pytest.fixture(scope="module", params=[1, 4], ids=["1 rank", "4 ranks"])
def ranks(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def reference(ranks: int) -> RunFolder:
    """Return the same run without interruption."""
    return trained([*ENDLESS, f"train.steps={REFERENCE_STEPS}"], ranks=ranks)


def kill_rank(jobs: Jobs, job: str, run: RunFolder) -> None:
    os.kill(rank_processes(run)[0], signal.SIGKILL)


def kill_agent(jobs: Jobs, job: str, run: RunFolder) -> None:
    os.kill(processes(run, "torchrun")[0], signal.SIGKILL)


def kill_stepd(jobs: Jobs, job: str, run: RunFolder) -> None:
    """Kill the slurmstepd of the agents' step on one node."""
    parent = processes(run, "torchrun")[0]
    while Path(f"/proc/{parent}/comm").read_text().strip() != "slurmstepd":
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)


def requeue(jobs: Jobs, job: str, run: RunFolder) -> None:
    jobs.cluster.requeue(job)


def newest_shard(run: RunFolder) -> Path:
    newest = run.checkpoints / (run.checkpoints / "latest").read_text().strip()
    return max(newest.glob("*.distcp"))


def delete_shard(run: RunFolder) -> None:
    newest_shard(run).unlink()


def flip_bit(run: RunFolder) -> None:
    content = bytearray(newest_shard(run).read_bytes())
    content[len(content) // 2] ^= 1
    newest_shard(run).write_bytes(content)


def spoil_pointer(run: RunFolder) -> None:
    (run.checkpoints / "latest").write_bytes(b"\xffstep-nonsense\0")


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """A resumed job: the steps done twice and the number of attempts."""

    lost: int
    attempts: int


def resume(jobs: Jobs, job: str, run: RunFolder) -> Resumption:
    """Let a requeued job run to its end and return what it lost."""
    wait_until(lambda: jobs.cluster.restarts(job) >= 1, timeout=120, what="the requeue")
    # Far enough for ranks that keep training until Slurm ends them.
    end_at(run, max(losses(run)) + 400)
    jobs.cluster.end_requeue_hold(job)
    jobs.cluster.wait(job, timeout=180)
    assert jobs.state(job) == "COMPLETED 0:0", jobs.output(job)
    assert events(run)[-1] == "done"
    return Resumption(lost=lost_steps(run), attempts=len(run.attempts()))


def lost_steps(run: RunFolder) -> int:
    """Return the number of steps that the newest attempt repeated."""
    records = list(run.records())
    start = max(i for i, record in enumerate(records) if record.get("event") == "started")
    started_at = int(records[start]["step"])
    before = (int(record["step"]) for record in records[:start] if "loss" in record)
    return max(before, default=started_at) - started_at


@pytest.mark.long
@pytest.mark.parametrize("end", [requeue, kill_rank, kill_agent], ids=lambda end: end.__name__)
def test_a_sudden_end_costs_at_most_one_save_interval(
    jobs: Jobs,
    ranks: int,
    reference: RunFolder,
    end: Callable[[Jobs, str, RunFolder], None],
) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=FLAGS[ranks])
    run = jobs.at_step(job, 60)
    end(jobs, job, run)
    resumed = resume(jobs, job, run)
    assert 0 <= resumed.lost <= run.config().checkpoint.every
    expect_same_curve(run, reference)


@pytest.mark.long
def test_a_killed_slurmstepd_ends_nothing_and_the_next_warning_is_heard(
    jobs: Jobs, ranks: int, reference: RunFolder
) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=FLAGS[ranks])
    run = jobs.at_step(job, 60)
    kill_stepd(jobs, job, run)
    jobs.at_step(job, max(losses(run)) + 20)
    jobs.cluster.warn(job)
    wait_until(lambda: events(run)[-1] == "paused", timeout=60)
    assert resume(jobs, job, run).lost == 0
    expect_same_curve(run, reference)


@pytest.mark.long
def test_a_lost_node_costs_at_most_one_save_interval(
    jobs: Jobs, ranks: int, reference: RunFolder
) -> None:
    flags = ("--nodes=1", f"--gpus-per-node={min(ranks, 2)}")
    job = jobs.submit(DIGITS, *ENDLESS, flags=flags if ranks == 1 else ("--nodes=2", flags[1]))
    run = jobs.at_step(job, 60)
    lost = jobs.cluster.nodes(job)[-1]
    jobs.cluster.lose_node(lost, tasks="die")
    try:
        resumed = resume(jobs, job, run)
        assert lost not in jobs.cluster.nodes(job)
    finally:
        jobs.cluster.restore_node(lost)
    assert 0 <= resumed.lost <= run.config().checkpoint.every
    expect_same_curve(run, reference)


@pytest.mark.long
@pytest.mark.usefixtures("several_jobs")
def test_a_preemption_loses_no_step(jobs: Jobs, ranks: int, reference: RunFolder) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=(*FLAGS[ranks], "--partition=preempt"))
    run = jobs.at_step(job, 30)
    more = jobs.cluster.submit(
        *TWO_BY_TWO, "--partition=high", "--time=5", "--output=/dev/null", script="sleep 240"
    )
    wait_until(lambda: events(run)[-1] == "paused", timeout=60)
    jobs.cluster.wait(more, "RUNNING", timeout=90)
    jobs.cluster.cancel(more)
    assert resume(jobs, job, run).lost == 0
    expect_same_curve(run, reference)


@pytest.mark.long
@pytest.mark.parametrize(
    "damage", [delete_shard, flip_bit, spoil_pointer], ids=lambda damage: damage.__name__
)
def test_a_damaged_checkpoint_costs_at_most_the_interval_before_it(
    jobs: Jobs,
    ranks: int,
    reference: RunFolder,
    damage: Callable[[RunFolder], None],
) -> None:
    job = jobs.submit(DIGITS, *ENDLESS, flags=FLAGS[ranks])
    run = jobs.at_step(job, 60)
    jobs.cluster.warn(job)
    wait_until(lambda: events(run)[-1] == "paused", timeout=60)
    damage(run)
    resumed = resume(jobs, job, run)
    most = 0 if damage is spoil_pointer else run.config().checkpoint.every
    assert 0 <= resumed.lost <= most
    assert bool(list(run.checkpoints.glob("*.damaged"))) == (damage is not spoil_pointer)
    expect_same_curve(run, reference)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, int], None]]:
    """Return a function that mounts a file system of a given size over a folder."""
    mounted: list[Path] = []

    def put(folder: Path, size: int) -> None:
        folder.mkdir(exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("only root may mount a small file system here")
        mounted.append(folder)

    yield put
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_ends_the_run_and_keeps_the_last_checkpoint(
    jobs: Jobs,
    ranks: int,
    reference: RunFolder,
    small_disk: Callable[[Path, int], None],
) -> None:
    newest = reference.checkpoints / f"step-{REFERENCE_STEPS:09d}"
    size = sum(file.stat().st_size for file in newest.iterdir())
    job = jobs.submit(DIGITS, *ENDLESS, "checkpoint.every=60", flags=FLAGS[ranks])
    run = jobs.at_step(job, 1)
    small_disk(run.checkpoints, size * 17 // 10)
    jobs.cluster.wait(job, timeout=120)
    last = list(run.records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "disk")
    assert jobs.cluster.restarts(job) == 0
    assert [entry.name for entry in run.checkpoints.glob("step-*")] == ["step-000000060"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, slurm_installed: None) -> Iterator[Cluster]:
    """Start a Slurm that checks the memory of jobs every 20 s and kills those over their limit."""
    lines = ["JobAcctGatherFrequency=20", "JobAcctGatherParams=OverMemoryKill"]
    one = Cluster.start(tmp_path_factory.mktemp("watched"), lines=lines)
    yield one
    one.stop()


@pytest.mark.long
def test_too_little_host_memory_ends_the_run_for_good_and_keeps_its_checkpoints(
    watched: Cluster, ranks: int, tmp_path: Path
) -> None:
    jobs = Jobs(cluster=watched, logs=tmp_path)
    job = jobs.submit(DIGITS, *ENDLESS, flags=(*FLAGS[ranks], "--mem=250M"))
    watched.wait(job, timeout=120)
    run = jobs.run_of(job)
    failed = list(run.records())[-1]
    assert (failed["event"], failed["reason"]) == ("failed", "host_oom")
    assert watched.restarts(job) == 0
    again = jobs.submit(run.path, f"train.steps={max(losses(run)) + 10}", flags=FLAGS[ranks])
    watched.wait(again, timeout=120)
    assert events(run)[-1] == "done"
    assert lost_steps(run) <= run.config().checkpoint.every
