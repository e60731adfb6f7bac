"""Each mistake with signals and requeues fails on a real Slurm, and its fix works."""

import pytest

from tests.slurm.cluster import wait_until
from tests.slurm.script_trial import Trial, expect_rule, rules

# The unit tests of the rules run in `make test`; these show the mistakes themselves.
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("several_jobs")]


FOREGROUND = "#SBATCH --signal=B:USR1@60\ntrap 'echo saving' USR1\necho up\n{}\n"


def test_a_trap_waits_for_the_end_of_a_step_in_the_foreground(trial: Trial) -> None:
    step = "srun bash -c 'until [[ -e go ]]; do sleep .2; done'"
    bad = FOREGROUND.format(f"{step}; echo step over")
    good = FOREGROUND.format(
        f'{step} & pid=$!\nwhile kill -0 "$pid" 2>/dev/null; do wait "$pid"; done'
    )
    expect_rule("foreground-step", bad, good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.wait_for(job, "up")
        trial.cluster.warn(job)
    trial.wait_for(jobs[1], "saving")
    assert "saving" not in trial.output(jobs[0])
    (trial.folder / "go").touch()
    trial.cluster.wait(jobs[0])
    assert trial.output(jobs[0]) == "up\nsaving\nstep over\n"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("lost-exit-code", "srun false\necho bye\n", "x=0\nsrun false || x=$?\nexit $x\n"),
        ("lost-exit-code", "srun false\necho bye\n", "set -e\nsrun false\necho bye\n"),
        ("lost-in-pipe", "srun false | tee log\n", "set -o pipefail\nsrun false | tee log\n"),
        ("bare-wait", "srun false &\nwait\n", 'srun false & pid=$!\nwait "$pid"\n'),
    ],
)  # fmt: skip
def test_a_failed_job_counts_as_completed(trial: Trial, rule: str, bad: str, good: str) -> None:
    assert rule in rules(bad)
    assert not rules(good) & {"lost-exit-code", "lost-in-pipe", "bare-wait"}
    jobs = [trial.start(bad), trial.start(good)]
    assert [trial.cluster.wait(job) for job in jobs] == ["COMPLETED", "FAILED"]


def test_nothing_waits_for_a_step_in_the_background(trial: Trial) -> None:
    bad = "srun bash -c 'sleep 10; echo trained' &\nsleep 1\n"
    good = bad + "wait $!\n"
    expect_rule("no-wait", bad, good)
    assert "trained" not in trial.run(bad)[1]
    assert "trained" in trial.run(good)[1]


SINGLE = "trap 'echo heard' USR1\nsrun bash -c 'sleep 10; echo saved' & pid=$!\necho up\n{}\n"


def test_a_signal_ends_a_single_wait(trial: Trial) -> None:
    bad = SINGLE.format('wait "$pid"')
    good = SINGLE.format('while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done')
    expect_rule("single-wait", bad, good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.wait_for(job, "up")
        trial.cluster.warn(job)
        trial.cluster.wait(job)
    assert "saved" not in trial.output(jobs[0])
    assert trial.output(jobs[1]) == "up\nheard\nsaved\n"


def test_a_signal_for_a_shell_without_a_trap_kills_it(trial: Trial) -> None:
    bad = "#SBATCH --signal=B:USR1@60\necho up\nsleep 4\n"
    good = "#SBATCH --signal=B:USR1@60\ntrap : USR1\necho up\nsleep 4\nexit 0\n"
    expect_rule("untrapped", bad, good)
    states = []
    for text in (bad, good):
        job = trial.start(text)
        trial.wait_for(job, "up")
        trial.cluster.warn(job)
        states.append(trial.cluster.wait(job))
    assert states == ["FAILED", "COMPLETED"]


STEPS = "#SBATCH --signal={}USR1@60\ntrap 'echo shell' USR1\n{}echo up\nsleep 3 & wait; wait\n"


def test_a_signal_without_b_reaches_steps_and_not_the_shell(trial: Trial) -> None:
    step = "srun bash -c \"trap 'echo step' USR1; echo ready; sleep 30 & wait\" &\n"
    bad, good = STEPS.format("", step), STEPS.format("B:", step)
    expect_rule("not-for-the-shell", bad, good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.wait_for(job, "up")
        trial.wait_for(job, "ready")
    # As --signal without and with B: would send it.
    trial.cluster.run("scancel", "--signal=USR1", jobs[0])
    trial.cluster.warn(jobs[1])
    trial.wait_for(jobs[0], "step")
    trial.wait_for(jobs[1], "shell")
    assert "shell" not in trial.output(jobs[0])


def test_a_signal_for_steps_reaches_no_process_without_steps(trial: Trial) -> None:
    bad = "#SBATCH --signal=USR1@60\necho up\npython -u train.py\n"
    good = bad.replace("python", "srun python")
    expect_rule("nobody-hears", bad, good)
    (trial.folder / "train.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('heard'))\n"
        "print('ready')\ntime.sleep(4)\n"
    )
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.wait_for(job, "ready")
        trial.cluster.run("scancel", "--signal=USR1", job)
    trial.wait_for(jobs[1], "heard")
    trial.cluster.wait(jobs[0])
    assert "heard" not in trial.output(jobs[0])


def test_a_requeued_job_empties_its_log(trial: Trial) -> None:
    bad = "#SBATCH --requeue\necho attempt ${SLURM_RESTART_COUNT:-0}\nsleep 30\n"
    good = "#SBATCH --open-mode=append\n" + bad
    expect_rule("no-append", bad, good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.wait_for(job, "attempt 0")
        trial.cluster.requeue(job)
    for job in jobs:
        trial.cluster.end_requeue_hold(job)
        trial.wait_for(job, "attempt 1")
    assert "attempt 0" not in trial.output(jobs[0])
    assert "attempt 0" in trial.output(jobs[1])


def test_commands_after_a_requeue_do_not_run(trial: Trial) -> None:
    bad = "scontrol requeue $SLURM_JOB_ID\nsleep 10\ntouch cleaned\n"
    good = "touch cleaned\nscontrol requeue $SLURM_JOB_ID\n"
    expect_rule("requeue-not-last", bad, good)
    for text, is_there in ((bad, False), (good, True)):
        job = trial.start(text)
        wait_until(lambda job=job: trial.cluster.reason(job) == "BeginTime")
        assert (trial.folder / "cleaned").exists() == is_there
        trial.cluster.cancel(job)


def test_a_requeue_at_term_brings_a_cancelled_job_back(trial: Trial) -> None:
    # Slurm may send TERM twice; the second would end scontrol.
    bad = (
        "again() {\ntrap '' TERM\nscontrol requeue $SLURM_JOB_ID\nexit\n}\n"
        "trap again TERM\necho up\nsleep 60 & wait\n"
    )
    good = "trap 'echo saved; exit' TERM\necho up\nsleep 60 & wait\n"
    expect_rule("requeue-at-term", bad, good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.wait_for(job, "up")
        trial.cluster.cancel(job)
    wait_until(lambda: trial.cluster.state(jobs[0]) in ("PENDING", "RUNNING"))
    wait_until(lambda: trial.cluster.restarts(jobs[0]) == 1)
    assert trial.cluster.wait(jobs[1]) == "CANCELLED"


def test_a_script_goes_on_if_its_environment_is_not_there(trial: Trial) -> None:
    bad = "source /no/such/venv/bin/activate\npython -c 'print(1 + 1)'; python -m platform\n"
    good = f"set -e\n{bad}"
    expect_rule("unchecked-environment", bad, good)
    state, output = trial.run(bad)
    assert (state, "2\n" in output) == ("COMPLETED", True)
    state, output = trial.run(good)
    assert (state, "2\n" in output) == ("FAILED", False)
