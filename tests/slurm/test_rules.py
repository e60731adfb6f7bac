"""What each rule for batch scripts warns of happens on a real Slurm, and no more once mended."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.rules.reading import parse_script
from launch.rules.verdicts import findings

from .cluster import Cluster, wait_until

# The unit tests of the rules are in `make test`; what they are about is shown here.
pytestmark = pytest.mark.long


def rules(text: str) -> set[str]:
    """The names of the rules that a script breaks."""
    return {one.rule.name for one in findings(parse_script(text, path=Path("my.sbatch")))}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Scripts that are judged by a rule and then run."""

    cluster: Cluster
    folder: Path

    def start(self, text: str, *flags: str) -> str:
        """Submit a script; its job."""
        script = self.folder / "my.sbatch"
        script.write_text(f"#!/bin/bash\n{text}")
        return self.cluster.submit(
            "--output=%j.out", *flags, script, cwd=self.folder, env={"PATH": path()}
        )

    def said(self, job: str) -> str:
        """The job's output so far."""
        file = self.folder / f"{job}.out"
        return file.read_text() if file.exists() else ""

    def ended(self, text: str, *flags: str) -> tuple[str, str]:
        """State and output of a script that was run to its end."""
        job = self.start(text, *flags)
        return self.cluster.wait(job), self.said(job)

    def hears(self, job: str, word: str, *, timeout: float = 20) -> None:
        """Wait until the job has said something."""
        wait_until(lambda: word in self.said(job), timeout=timeout, what=f"{word} of job {job}")


def path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def trial(cluster: Cluster, tmp_path: Path) -> Trial:
    return Trial(cluster=cluster, folder=tmp_path)


FOREGROUND = "#SBATCH --signal=B:USR1@60\ntrap 'echo saving' USR1\necho up\n{}\n"


def test_a_trap_waits_for_the_end_of_a_step_in_the_foreground(trial: Trial) -> None:
    bad = FOREGROUND.format("srun sleep 4; echo step over")
    good = FOREGROUND.format(
        'srun sleep 4 & pid=$!\nwhile kill -0 "$pid" 2>/dev/null; do wait "$pid"; done'
    )
    assert "foreground-step" in rules(bad)
    assert "foreground-step" not in rules(good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.hears(job, "up")
        trial.cluster.warn(job)
    trial.hears(jobs[1], "saving", timeout=3)
    assert "saving" not in trial.said(jobs[0])
    trial.cluster.wait(jobs[0])
    assert trial.said(jobs[0]) == "up\nsaving\nstep over\n"


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
    bad = "srun bash -c 'sleep 3; echo trained' &\nsleep 1\n"
    good = bad + "wait $!\n"
    assert "no-wait" in rules(bad)
    assert "no-wait" not in rules(good)
    assert "trained" not in trial.ended(bad)[1]
    assert "trained" in trial.ended(good)[1]


SINGLE = "trap 'echo heard' USR1\nsrun bash -c 'sleep 3; echo saved' & pid=$!\necho up\n{}\n"


def test_a_signal_ends_a_single_wait(trial: Trial) -> None:
    bad = SINGLE.format('wait "$pid"')
    good = SINGLE.format('while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done')
    assert "single-wait" in rules(bad)
    assert "single-wait" not in rules(good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.hears(job, "up")
        trial.cluster.warn(job)
        trial.cluster.wait(job)
    assert "saved" not in trial.said(jobs[0])
    assert trial.said(jobs[1]) == "up\nheard\nsaved\n"


def test_a_signal_for_a_shell_without_a_trap_kills_it(trial: Trial) -> None:
    bad = "#SBATCH --signal=B:USR1@60\necho up\nsleep 4\n"
    good = "#SBATCH --signal=B:USR1@60\ntrap : USR1\necho up\nsleep 4\nexit 0\n"
    assert "untrapped" in rules(bad)
    assert "untrapped" not in rules(good)
    states = []
    for text in (bad, good):
        job = trial.start(text)
        trial.hears(job, "up")
        trial.cluster.warn(job)
        states.append(trial.cluster.wait(job))
    assert states == ["FAILED", "COMPLETED"]


STEPS = "#SBATCH --signal={}USR1@60\ntrap 'echo shell' USR1\n{}echo up\nsleep 3 & wait; wait\n"


def test_a_signal_without_b_reaches_steps_and_not_the_shell(trial: Trial) -> None:
    step = "srun bash -c \"trap 'echo step' USR1; echo ready; sleep 3 & wait\" &\n"
    bad, good = STEPS.format("", step), STEPS.format("B:", step)
    assert "not-for-the-shell" in rules(bad)
    assert "not-for-the-shell" not in rules(good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.hears(job, "up")
        trial.hears(job, "ready")
    # What --signal without and with B: sends.
    trial.cluster.run("scancel", "--signal=USR1", jobs[0])
    trial.cluster.warn(jobs[1])
    trial.hears(jobs[0], "step")
    trial.hears(jobs[1], "shell")
    assert "shell" not in trial.said(jobs[0])


def test_a_signal_for_steps_is_heard_by_nobody_where_there_are_none(trial: Trial) -> None:
    bad = "#SBATCH --signal=USR1@60\necho up\npython -u train.py\n"
    good = bad.replace("python", "srun python")
    assert "nobody-hears" in rules(bad)
    assert "nobody-hears" not in rules(good)
    (trial.folder / "train.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('heard'))\n"
        "print('ready')\ntime.sleep(4)\n"
    )
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.hears(job, "ready")
        trial.cluster.run("scancel", "--signal=USR1", job)
    trial.hears(jobs[1], "heard")
    trial.cluster.wait(jobs[0])
    assert "heard" not in trial.said(jobs[0])


def test_a_requeued_job_empties_its_log(trial: Trial) -> None:
    bad = "#SBATCH --requeue\necho attempt ${SLURM_RESTART_COUNT:-0}\nsleep 30\n"
    good = "#SBATCH --open-mode=append\n" + bad
    assert "no-append" in rules(bad)
    assert "no-append" not in rules(good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.hears(job, "attempt 0")
        trial.cluster.requeue(job)
    for job in jobs:
        trial.cluster.end_requeue_hold(job)
        trial.hears(job, "attempt 1")
    assert "attempt 0" not in trial.said(jobs[0])
    assert "attempt 0" in trial.said(jobs[1])


def test_what_follows_a_requeue_does_not_run(trial: Trial) -> None:
    bad = "scontrol requeue $SLURM_JOB_ID\nsleep 1\ntouch cleaned\n"
    good = "touch cleaned\nscontrol requeue $SLURM_JOB_ID\n"
    assert "requeue-not-last" in rules(bad)
    assert "requeue-not-last" not in rules(good)
    for text, is_there in ((bad, False), (good, True)):
        job = trial.start(text)
        wait_until(lambda job=job: trial.cluster.reason(job) == "BeginTime", timeout=20)
        assert (trial.folder / "cleaned").exists() == is_there
        trial.cluster.cancel(job)


def test_a_requeue_at_term_brings_a_cancelled_job_back(trial: Trial) -> None:
    bad = "trap 'scontrol requeue $SLURM_JOB_ID; exit' TERM\necho up\nsleep 60 & wait\n"
    good = "trap 'echo saved; exit' TERM\necho up\nsleep 60 & wait\n"
    assert "requeue-at-term" in rules(bad)
    assert "requeue-at-term" not in rules(good)
    jobs = [trial.start(bad), trial.start(good)]
    for job in jobs:
        trial.hears(job, "up")
        trial.cluster.cancel(job)
    wait_until(lambda: trial.cluster.state(jobs[0]) in ("PENDING", "RUNNING"), timeout=20)
    wait_until(lambda: trial.cluster.restarts(jobs[0]) == 1, timeout=20)
    assert trial.cluster.wait(jobs[1]) == "CANCELLED"


HEAD = "head=$(getent hosts none-such.invalid{})\n{}srun echo head=$head\n"


def test_a_fallback_to_localhost_makes_every_node_the_head(trial: Trial) -> None:
    bad = HEAD.format(" || echo localhost", "")
    good = HEAD.format("", "[[ -n $head ]] || exit 1\n")
    assert "localhost-fallback" in rules(bad)
    assert "localhost-fallback" not in rules(good)
    state, said = trial.ended(bad, "--nodes=2")
    assert (state, said.count("head=localhost")) == ("COMPLETED", 2)
    assert trial.ended(good, "--nodes=2")[0] == "FAILED"


def test_a_job_without_its_output_folder_never_runs(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "#SBATCH --output=logs/%j.out\nmkdir -p logs\ntouch ran\n"
    monkeypatch.chdir(trial.folder)
    assert "output-folder" in rules(text)
    script = trial.folder / "my.sbatch"
    script.write_text(f"#!/bin/bash\n{text}")
    job = trial.cluster.submit(script, cwd=trial.folder)
    assert trial.cluster.wait(job) == "FAILED"
    assert trial.cluster.reason(job) == "JobLaunchFailure"
    assert not (trial.folder / "ran").exists()
    (trial.folder / "logs").mkdir()
    assert "output-folder" not in rules(text)
    assert trial.cluster.wait(trial.cluster.submit(script, cwd=trial.folder)) == "COMPLETED"
    assert (trial.folder / "ran").exists()


def test_a_variable_in_a_directive_is_taken_literally(trial: Trial) -> None:
    bad = "#SBATCH --job-name=run-$USER\nsrun true\n"
    assert "variable-in-directive" in rules(bad)
    assert "variable-in-directive" not in rules("#SBATCH --job-name=run-%u\n")
    job = trial.start(bad)
    assert trial.cluster.squeue(job, "%j") == "run-$USER"


def test_a_directive_below_a_command_does_nothing(trial: Trial) -> None:
    bad, good = "cd .\n#SBATCH --job-name=mine\n", "#SBATCH --job-name=mine\ncd .\n"
    assert "late-directive" in rules(bad)
    assert "late-directive" not in rules(good)
    names = [trial.cluster.squeue(trial.start(text), "%j") for text in (bad, good)]
    assert names == ["my.sbatch", "mine"]


def test_a_task_has_one_cpu_where_none_are_asked_for(trial: Trial) -> None:
    text = "#SBATCH --ntasks=1\nsrun bash -c 'echo cpus=$SLURM_CPUS_ON_NODE'\n"
    good = "#SBATCH --cpus-per-task=4\n" + text
    assert "one-cpu" in rules(text)
    assert "one-cpu" not in rules(good)
    assert trial.ended(text)[1] == "cpus=1\n"
    assert trial.ended(good)[1] == "cpus=4\n"


def test_a_step_does_not_take_over_the_cpus_of_its_job(trial: Trial) -> None:
    # --exact: the step gets what it asks for, as binding by task/affinity or cgroups would have it.
    bad = "#SBATCH --cpus-per-task=4\nsrun --exact bash -c 'echo cpus=$SLURM_CPUS_ON_NODE'\n"
    good = bad.replace("srun", "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun")
    assert "srun-cpus" in rules(bad)
    assert "srun-cpus" not in rules(good)
    assert trial.ended(bad)[1] == "cpus=1\n"
    assert trial.ended(good)[1] == "cpus=4\n"


def test_several_tasks_a_node_start_an_agent_each(trial: Trial) -> None:
    bad = "#SBATCH --ntasks-per-node=2\nsrun torchrun --help\n"
    good = "#SBATCH --ntasks-per-node=1\nsrun torchrun --help\n"
    assert "several-agents" in rules(bad)
    assert "several-agents" not in rules(good)
    counts = [trial.ended(text.replace("torchrun --help", "echo agent"))[1] for text in (bad, good)]
    assert [count.count("agent") for count in counts] == [2, 1]


def test_a_script_is_run_from_a_spool_folder(trial: Trial) -> None:
    bad, good = 'cd "$(dirname "$0")"; pwd\n', 'cd "$SLURM_SUBMIT_DIR"; pwd\n'
    assert "spool-path" in rules(bad)
    assert "spool-path" not in rules(good)
    assert "spool" in trial.ended(bad)[1]
    assert trial.ended(good)[1] == f"{trial.folder}\n"


def test_memory_that_is_not_asked_for_is_the_default(trial: Trial) -> None:
    bad = "#SBATCH --ntasks=1\nsrun true\n"
    good = "#SBATCH --mem=9G\n" + bad
    assert "no-memory" in rules(bad)
    assert "no-memory" not in rules(good)
    shown = [trial.cluster.squeue(trial.start(text), "%m") for text in (bad, good)]
    assert shown == ["4000M", "9G"]


def test_the_end_of_a_job_is_in_squeue_and_in_no_variable(trial: Trial) -> None:
    bad = "echo end=$SLURM_JOB_END_TIME\n"
    good = 'echo end=$(squeue -h -j "$SLURM_JOB_ID" -o %e)\n'
    assert "job-end-time" in rules(bad)
    assert "job-end-time" not in rules(good)
    assert trial.ended(bad)[1] == "end=\n"
    assert trial.ended(good)[1].startswith("end=20")


@pytest.mark.long
def test_torchrun_sets_one_thread_for_several_ranks_and_nothing_for_one(trial: Trial) -> None:
    one = (
        "srun torchrun --standalone --nproc-per-node={} --no-python "
        "bash -c 'echo t=$OMP_NUM_THREADS'\n"
    )
    assert "omp-threads" in rules(one)
    assert "omp-threads" not in rules("export OMP_NUM_THREADS=4\n" + one)
    unset = "unset OMP_NUM_THREADS\n"
    assert "t=\n" in trial.ended(unset + one.format(1))[1]
    assert trial.ended(unset + one.format(2))[1].count("t=1\n") == 2
    assert "t=4\n" in trial.ended("export OMP_NUM_THREADS=4\n" + one.format(1))[1]


AGENT = (
    "#SBATCH --signal=B:USR1@60\ntrap 'kill -USR1 $pid' USR1\n"
    "srun {} & pid=$!\n"
    'while kill -0 "$pid" 2>/dev/null; do wait "$pid"; status=$?; done\nexit "$status"\n'
)


@pytest.mark.long
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
        trial.hears(job, "ready", timeout=60)
        trial.cluster.warn(job)
        states.append(trial.cluster.wait(job))
    assert states == ["FAILED", "COMPLETED"]
    assert "saved" in trial.said(job)


MEETING = (
    "srun torchrun --nnodes=1:1 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-conf=join_timeout=15 "
    "{} --no-python bash -c 'echo ready; sleep {}; echo trained'\n"
)
OWN = "--rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=127.0.0.1:$((20000 + SLURM_JOB_ID % 12000))"


def two_jobs_on_a_node(trial: Trial, meeting: str) -> list[str]:
    """How two jobs end, the second of which began later and needs longer."""
    first = trial.start(MEETING.format(meeting, 8), "--nodelist=a40-1")
    trial.hears(first, "ready", timeout=60)
    second = trial.start(MEETING.format(meeting, 12), "--nodelist=a40-1")
    return [trial.cluster.wait(job, timeout=120) for job in (first, second)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        ("fixed-port", "--rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=127.0.0.1:{port}"),
        ("fixed-rdzv-id", "--rdzv-id=77 --rdzv-endpoint=127.0.0.1:{port}"),
    ],
)
def test_two_jobs_with_one_port_on_a_node_share_a_store(trial: Trial, rule: str, bad: str) -> None:
    port = 20000 + os.getpid() % 12000
    assert rule in rules(MEETING.format(bad.format(port=port), 1))
    assert rule not in rules(MEETING.format(OWN, 1))
    assert two_jobs_on_a_node(trial, bad.format(port=port)) == ["COMPLETED", "FAILED"]
    assert two_jobs_on_a_node(trial, OWN) == ["COMPLETED", "COMPLETED"]


SEVERAL = """
for s in 8 12; do
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


@pytest.mark.long
def test_two_runs_of_a_job_that_have_its_id_alone_join_one_another(trial: Trial) -> None:
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
        ends.append((trial.said(job).count("well\n"), trial.said(job).count("died\n")))
    assert ends == [(1, 1), (2, 0)]


def test_several_runs_of_a_job_are_told_apart_by_more_than_its_id() -> None:
    two = "torchrun --rdzv-id={0} a.py &\ntorchrun --rdzv-id={0} b.py &\nwait $!\n"
    assert "job-id-alone" in rules(two.format("$SLURM_JOB_ID"))
    assert "job-id-alone" not in rules(two.format("$SLURM_JOB_ID-$RUN"))
    assert "job-id-alone" not in rules("torchrun --rdzv-id=$SLURM_JOB_ID a.py\n")
