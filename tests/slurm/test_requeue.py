"""jobs/requeue.sh in a batch script of one's own, on a real Slurm."""

from pathlib import Path

import pytest

from tests.slurm.script_trial import Trial, rules

REQUEUE = Path("jobs/requeue.sh").resolve()
HEAD = f"""\
#SBATCH --signal=B:USR1@180
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --cpus-per-task=1
set -euo pipefail
source '{REQUEUE}'
"""
# A program that saves at USR1, and goes on from what it saved.
PROGRAM = """\
import pathlib, signal, sys, time
saved = pathlib.Path("saved")
if saved.exists():
    sys.exit(print("resumed", flush=True))
def save(*_):
    saved.touch()
    sys.exit(print("saving", flush=True))
signal.signal(signal.SIGUSR1, save)
print("up", flush=True)
time.sleep(60)
"""


def test_a_script_that_sources_it_saves_at_the_warning_is_requeued_and_goes_on(
    trial: Trial,
) -> None:
    (trial.folder / "train.py").write_text(PROGRAM)
    text = HEAD + "run_and_requeue srun python train.py\n"
    assert not rules(text) - {"no-memory", "srun-cpus"}
    job = trial.start(text)
    trial.wait_for(job, "up")
    trial.cluster.warn(job)
    trial.cluster.end_requeue_hold(job)
    assert trial.cluster.wait(job) == "COMPLETED"
    output = trial.output(job)
    words = ("up", "saving", "requeueing", "resumed")
    assert [output.count(word) for word in words] == [1, 1, 1, 1]


def test_a_chosen_exit_code_requeues_up_to_a_bound_and_any_other_ends_the_job(trial: Trial) -> None:
    text = HEAD + "REQUEUE_CODE=85 MOST_REQUEUES=1\nrun_and_requeue bash -c 'echo up; exit {}'\n"
    job = trial.start(text.format(85))
    trial.cluster.end_requeue_hold(job)
    assert trial.cluster.wait(job) == "FAILED"
    assert trial.output(job).count("up") == 2
    assert "requeued 1 times already" in trial.output(job)
    other = trial.start(text.format(3))
    assert trial.cluster.wait(other) == "FAILED"
    assert trial.cluster.accounted(other, "ExitCode")["ExitCode"] == "3:0"
    assert "requeueing" not in trial.output(other)


def test_a_scancel_reaches_the_command_and_is_not_requeued(trial: Trial) -> None:
    (trial.folder / "train.py").write_text(PROGRAM.replace("SIGUSR1", "SIGTERM"))
    job = trial.start(HEAD + "run_and_requeue python train.py\n")
    trial.wait_for(job, "up")
    trial.cluster.cancel(job)
    assert trial.cluster.wait(job) == "CANCELLED"
    trial.wait_for(job, "saving")
    assert "requeueing" not in trial.output(job)


# Answers once it has been told to end.
ASKS = """\
trap 'SIGNALS=1' TERM
trap '' USR1
echo up
while ((!SIGNALS)); do sleep 0.2 || true; done
if is_cancelled; then echo cancelled; else echo "not cancelled"; fi
"""


@pytest.mark.parametrize(
    ("how", "answer"),
    [("scancel", "cancelled"), ("requeue", "not cancelled"), ("limit", "not cancelled")],
)
def test_a_scancel_is_told_from_other_ends_that_send_term(
    trial: Trial, how: str, answer: str
) -> None:
    job = trial.start(HEAD + ASKS)
    trial.wait_for(job, "up")
    if how == "scancel":
        trial.cluster.cancel(job)
    elif how == "requeue":
        trial.cluster.requeue(job)
    else:
        trial.cluster.bring_limit_near(job, seconds=1)
    trial.wait_for(job, "cancelled")
    assert answer in trial.output(job).splitlines()
