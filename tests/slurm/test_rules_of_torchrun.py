"""Each mistake with torchrun fails on a real Slurm, and its fix works."""

from __future__ import annotations

import os

import pytest

from tests.slurm.script_trial import Trial, rules, trial

__all__ = ["trial"]

# The unit tests of the rules run in `make test`; these show the mistakes themselves.
pytestmark = pytest.mark.long


def test_torchrun_sets_one_thread_for_several_ranks_and_nothing_for_one(trial: Trial) -> None:
    one = (
        "srun torchrun --standalone --nproc-per-node={} --no-python "
        "bash -c 'echo t=$OMP_NUM_THREADS'\n"
    )
    assert "omp-threads" in rules(one)
    assert "omp-threads" not in rules("export OMP_NUM_THREADS=4\n" + one)
    unset = "unset OMP_NUM_THREADS\n"
    assert "t=\n" in trial.run(unset + one.format(1))[1]
    assert trial.run(unset + one.format(2))[1].count("t=1\n") == 2
    assert "t=4\n" in trial.run("export OMP_NUM_THREADS=4\n" + one.format(1))[1]


AGENT = (
    "#SBATCH --signal=B:USR1@60\ntrap 'kill -USR1 $pid' USR1\n"
    "srun {} & pid=$!\n"
    'while kill -0 "$pid" 2>/dev/null; do wait "$pid"; status=$?; done\nexit "$status"\n'
)


def test_an_agent_dies_of_the_signal_that_its_ranks_wait_for(trial: Trial) -> None:
    (trial.folder / "train.py").write_text(
        "import signal, time\n"
        "def save(*_):\n    time.sleep(1)\n    print('saved', flush=True)\n    raise SystemExit\n"
        "signal.signal(signal.SIGUSR1, save)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    command = "torchrun --standalone --nproc-per-node=1 train.py"
    bad = AGENT.format(command)
    good = AGENT.format(f"bash -c 'trap \"\" USR1; exec {command}'")
    assert "agent-dies" in rules(bad)
    assert "agent-dies" not in rules(good)
    states = []
    for text in (bad, good):
        job = trial.start(text)
        trial.wait_for(job, "ready")
        trial.cluster.warn(job)
        states.append(trial.cluster.wait(job))
    assert states == ["FAILED", "COMPLETED"]
    assert "saved" in trial.output(job)


RENDEZVOUS = (
    "srun torchrun --nnodes=1:1 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-conf=join_timeout=15 "
    "{} --no-python bash -c 'echo ready; sleep {}; echo trained'\n"
)


OWN = "--rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=127.0.0.1:$((20000 + SLURM_JOB_ID % 12000))"


def two_jobs_on_a_node(trial: Trial, rendezvous: str) -> list[str]:
    """Return the final states of two jobs; the second starts later and takes longer."""
    first = trial.start(RENDEZVOUS.format(rendezvous, 16), "--nodelist=a40-1")
    trial.wait_for(first, "ready")
    second = trial.start(RENDEZVOUS.format(rendezvous, 22), "--nodelist=a40-1")
    return [trial.cluster.wait(job, timeout=120) for job in (first, second)]


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        ("fixed-port", "--rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=127.0.0.1:{port}"),
        ("fixed-rdzv-id", "--rdzv-id=77 --rdzv-endpoint=127.0.0.1:{port}"),
    ],
)
@pytest.mark.usefixtures("several_jobs")
def test_two_jobs_with_one_port_on_a_node_share_a_store(trial: Trial, rule: str, bad: str) -> None:
    port = 20000 + os.getpid() % 12000
    assert rule in rules(RENDEZVOUS.format(bad.format(port=port), 1))
    assert rule not in rules(RENDEZVOUS.format(OWN, 1))
    assert two_jobs_on_a_node(trial, bad.format(port=port)) == ["COMPLETED", "FAILED"]
    assert two_jobs_on_a_node(trial, OWN) == ["COMPLETED", "COMPLETED"]


SEVERAL = """
for s in 20 26; do
  srun --overlap --ntasks=1 torchrun --nnodes=1:1 --nproc-per-node=1 --rdzv-backend=c10d {} \\
    --rdzv-conf=join_timeout=15 --no-python bash -c 'echo ready; sleep '$s'; echo trained' &
  pids+=($!)
  until [[ $(grep -c ready $SLURM_JOB_ID.out) -ge ${{#pids[@]}} ]]; do
    sleep 0.2
    kill -0 ${{pids[-1]}} 2>/dev/null || break
  done
done
for pid in ${{pids[@]}}; do wait $pid && echo well || echo died; done
"""


def test_two_runs_of_a_job_with_only_its_id_join_each_other(trial: Trial) -> None:
    bad = SEVERAL.format(OWN)
    good = SEVERAL.format(
        OWN.replace("$SLURM_JOB_ID ", "$SLURM_JOB_ID-$s ").replace("))", " + s))")
    )
    assert "job-id-alone" in rules(bad)
    assert "job-id-alone" not in rules(good)
    ends = []
    for text in (bad, good):
        job = trial.start(text, "--nodelist=a40-1")
        trial.cluster.wait(job, "COMPLETED", timeout=120)
        ends.append((trial.output(job).count("well\n"), trial.output(job).count("died\n")))
    assert ends == [(1, 1), (2, 0)]


def test_several_runs_of_a_job_need_more_than_its_id() -> None:
    two = "torchrun --rdzv-id={0} a.py &\ntorchrun --rdzv-id={0} b.py &\nwait $!\n"
    assert "job-id-alone" in rules(two.format("$SLURM_JOB_ID"))
    assert "job-id-alone" not in rules(two.format("$SLURM_JOB_ID-$RUN"))
    assert "job-id-alone" not in rules("torchrun --rdzv-id=$SLURM_JOB_ID a.py\n")
