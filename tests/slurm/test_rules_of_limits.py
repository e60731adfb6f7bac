"""Each mistake with time limits loses work on a real Slurm, and its fix saves it."""

import pytest

from tests.slurm.script_trial import Trial, expect_rule

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("several_jobs")]

SAVES = "trap 'sleep {}; echo saved; exit' USR1\necho up\nwhile :; do sleep 1 & wait $!; done\n"


def test_at_a_limit_without_a_warning_nothing_is_saved(trial: Trial) -> None:
    (trial.folder / "train.py").write_text("import time\ntime.sleep(99)\nprint('saved')\n")
    bad = "#SBATCH --time=8:00:00\necho up\nsrun python train.py\n"
    good = "#SBATCH --signal=B:USR1@60\n" + SAVES.format(1)
    expect_rule("limit-without-warning", bad, good)
    jobs = [trial.start(bad, "--time=5"), trial.start(good, "--time=2")]
    trial.wait_for(jobs[0], "up")
    trial.cluster.bring_limit_near(jobs[0], seconds=1)
    assert trial.cluster.wait(jobs[0], timeout=120) == "TIMEOUT"
    assert "saved" not in trial.output(jobs[0])
    assert trial.cluster.wait(jobs[1], timeout=150) == "COMPLETED"
    assert "saved" in trial.output(jobs[1])


def test_a_warning_shorter_than_a_save_loses_it(trial: Trial) -> None:
    # Slurm looks for warnings and limits every 30 s.
    bad, good = (f"#SBATCH --signal=B:USR1@{warning}\n{SAVES.format(70)}" for warning in (2, 90))
    expect_rule("short-warning", bad, good)
    jobs = [trial.start(text, "--time=2") for text in (bad, good)]
    assert trial.cluster.wait(jobs[0], timeout=240) == "TIMEOUT"
    assert "saved" not in trial.output(jobs[0])
    assert trial.cluster.wait(jobs[1], timeout=240) == "COMPLETED"
    assert "saved" in trial.output(jobs[1])
