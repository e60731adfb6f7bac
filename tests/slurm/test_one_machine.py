"""Facts about the one-machine Slurm that the other tests rely on."""

import itertools
import time
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, wait_until

# A batch script that exits at a signal, as a training job does, and prints the signal.
EXITS_AT_SIGNAL = """
trap 'echo got USR1; exit 0' USR1
trap 'echo got TERM; exit 1' TERM
echo attempt ${SLURM_RESTART_COUNT:-none} of $SLURM_JOB_ID on $SLURMD_NODENAME
while :; do sleep 0.1; done
"""


def wait_for_text(log: Path, text: str, *, timeout: float = 60) -> None:
    wait_until(
        lambda: log.exists() and text in log.read_text(), timeout=timeout, what=f"{text!r} in {log}"
    )


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie, which may wait to be reaped, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_jobs_run_one_at_a_time_and_a_job_of_more_ranks_than_cores_runs_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = f"""
        srun bash -c 'echo + >>{tmp_path}/ranks; sleep 1; echo - >>{tmp_path}/ranks'
    """
    words = ("--ntasks-per-node=2", "--gpus-per-node=a40:2", "--output=/dev/null")
    small = cluster.submit("--array=0-3", *words, script=script)
    large = cluster.submit("--nodes=2", *words, script=script)
    wait_until(lambda: cluster.reason(large) == "AssocGrpJobsLimit", what="the limit")
    cluster.wait(large)
    lines = (tmp_path / "ranks").read_text().split()
    running = list(itertools.accumulate(1 if line == "+" else -1 for line in lines))
    assert (max(running[:16]), max(running)) == (2, 4)
    assert cluster.state(small).split() == ["COMPLETED"] * 4


def test_a_requeued_job_keeps_its_id_counts_its_restarts_and_is_held_under_ten_seconds(
    cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    job = cluster.submit("--open-mode=append", f"--output={log}", script=EXITS_AT_SIGNAL)
    wait_for_text(log, f"attempt none of {job}")
    requeued = time.monotonic()
    cluster.requeue(job)
    wait_for_text(log, f"attempt 1 of {job}")
    assert time.monotonic() - requeued < 10
    assert "got TERM" in log.read_text()
    cluster.requeue(job)
    cluster.end_requeue_hold(job)
    wait_for_text(log, f"attempt 2 of {job}")
    assert cluster.restarts(job) == 2


@pytest.mark.usefixtures("several_jobs")
def test_preemption_warns_at_once_and_a_job_may_use_the_grace_to_requeue_itself(
    cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    job = cluster.submit(
        "--partition=preempt", "--nodes=4", "--exclusive", "--signal=B:USR1@60",
        "--open-mode=append", f"--output={log}",
        script=EXITS_AT_SIGNAL.replace("exit 0", "scontrol requeue $SLURM_JOB_ID"),
    )  # fmt: skip
    wait_for_text(log, "attempt none")
    urgent = cluster.submit("--partition=high", "--output=/dev/null", "--wrap=sleep 1")
    wait_for_text(log, "got USR1", timeout=10)
    cluster.wait(urgent, "COMPLETED")
    cluster.end_requeue_hold(job)
    wait_for_text(log, f"attempt 1 of {job}")


def test_a_lost_node_requeues_the_job_and_its_tasks_linger(
    cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    job = cluster.submit(
        "--constraint=a100", "--open-mode=append", f"--output={log}",
        script="echo $$ attempt ${SLURM_RESTART_COUNT:-none} on $SLURMD_NODENAME\nsleep 60\n",
    )  # fmt: skip
    wait_for_text(log, "attempt none on a100-1")
    lingering = int(log.read_text().split()[0])
    cluster.lose_node("a100-1")
    assert cluster.node_states()["a100-1"].startswith("down")
    cluster.end_requeue_hold(job)
    wait_for_text(log, "attempt 1 on a100-2")
    assert is_running(lingering)
    states = [row["State"] for row in cluster.sacct(job, "State", duplicates=True)]
    assert states[0] == "NODE_FAIL"
    cluster.lose_node("a100-1", tasks="die")
    wait_until(lambda: not is_running(lingering), timeout=5, what="the task to die")
    cluster.restore_node("a100-1")
    assert cluster.node_states()["a100-1"] == "idle"


def test_up_refuses_a_folder_that_holds_something_else(
    slurm_installed: None, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RuntimeError, match="not empty"):
        Cluster.start(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
