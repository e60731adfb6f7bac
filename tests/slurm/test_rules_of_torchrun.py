"""Each mistake with torchrun fails on a real Slurm, and its fix works."""

import os

import pytest

from tests.slurm.script_trial import Trial, expect_rule, rules

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
    expect_rule("agent-dies", bad, good)
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


NODE_RANK = (
    "srun torchrun --nnodes=2 --nproc-per-node=1 --node-rank=$((1 - SLURM_PROCID)) {} "
    "--no-python bash -c 'echo wanted=$((1 - SLURM_PROCID)) got=$GROUP_RANK'\n"
)


def test_c10d_orders_nodes_by_their_addresses_and_not_by_their_node_rank(trial: Trial) -> None:
    port = "$((20000 + SLURM_JOB_ID % 12000))"
    c10d = f"--rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=127.0.0.1:{port}"
    bad = NODE_RANK.format(f"{c10d} --local-addr=127.0.0.$((SLURM_PROCID + 1))")
    good = NODE_RANK.format(f"--master-addr=127.0.0.1 --master-port={port}")
    expect_rule("node-rank", bad, good)
    # Each task expands its own number.
    texts = [f"cat >step <<'END'\n{text.removeprefix('srun ')}END\nsrun bash step\n"
             for text in (bad, good)]  # fmt: skip
    outputs = [trial.run(text, "--nodes=2", "--ntasks-per-node=1")[1] for text in texts]
    assert {"wanted=1 got=0", "wanted=0 got=1"} <= {*outputs[0].splitlines()}
    assert {"wanted=1 got=1", "wanted=0 got=0"} <= {*outputs[1].splitlines()}
