"""Each mistake in directives and resources fails on a real Slurm, and its fix works."""

import json

import pytest

from tests.slurm.script_trial import Trial, expect_rule, rules

# The unit tests of the rules run in `make test`; these show the mistakes themselves.
pytestmark = pytest.mark.long


HEAD = "head=$(getent hosts none-such.invalid{})\n{}srun echo head=$head\n"


def test_a_fallback_to_localhost_makes_every_node_the_head(trial: Trial) -> None:
    bad = HEAD.format(" || echo localhost", "")
    good = HEAD.format("", "[[ -n $head ]] || exit 1\n")
    expect_rule("localhost-fallback", bad, good)
    state, output = trial.run(bad, "--nodes=2")
    assert (state, output.count("head=localhost")) == ("COMPLETED", 2)
    assert trial.run(good, "--nodes=2")[0] == "FAILED"


def test_a_job_without_its_output_folder_runs_from_23_02_on(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "#SBATCH --output=logs/%j.out\nmkdir -p logs\ntouch ran\n"
    monkeypatch.chdir(trial.folder)
    warned = trial.warned("output-folder", text)
    script = trial.folder / "my.sbatch"
    script.write_text(f"#!/bin/bash\n{text}")
    job = trial.cluster.submit(script, cwd=trial.folder)
    assert trial.cluster.wait(job) == ("FAILED" if warned else "COMPLETED")
    said = trial.documented("`--output` in a folder that does not exist")
    assert said == ("fails" if warned else "runs")
    assert (trial.folder / "ran").exists() is not warned
    (trial.folder / "logs").mkdir(exist_ok=True)
    assert "output-folder" not in rules(text)
    assert trial.cluster.wait(trial.cluster.submit(script, cwd=trial.folder)) == "COMPLETED"
    assert (trial.folder / "ran").exists()


def test_a_script_without_directives_gets_what_the_partition_gives(trial: Trial) -> None:
    bad, good = "srun true\n", "#SBATCH --time=7\nsrun true\n"
    expect_rule("no-directive", bad, good)
    limits = [trial.cluster.squeue(trial.start(text), "%l") for text in (bad, good)]
    assert (limits[0] != "7:00", limits[1]) == (True, "7:00")


def test_the_json_of_a_state_is_a_text_or_a_list_by_version(trial: Trial) -> None:
    bad = "squeue --json -j $SLURM_JOB_ID\n"
    good = "squeue -h -j $SLURM_JOB_ID -o %T\n"
    expect_rule("json-output", bad, good)
    states = [job["job_state"] for job in json.loads(trial.run(bad)[1])["jobs"]]
    # 22.05 ignores -j.
    assert {type(state) for state in states} == {str if trial.version < "23.11" else list}
    assert trial.run(good)[1] == "RUNNING\n"


def test_a_variable_in_a_directive_is_taken_literally(trial: Trial) -> None:
    bad = "#SBATCH --job-name=run-$USER\nsrun true\n"
    assert "variable-in-directive" in rules(bad)
    assert "variable-in-directive" not in rules("#SBATCH --job-name=run-%u\n")
    job = trial.start(bad)
    assert trial.cluster.squeue(job, "%j") == "run-$USER"


def test_a_directive_below_a_command_does_nothing(trial: Trial) -> None:
    bad, good = "cd .\n#SBATCH --job-name=mine\n", "#SBATCH --job-name=mine\ncd .\n"
    expect_rule("late-directive", bad, good)
    names = [trial.cluster.squeue(trial.start(text), "%j") for text in (bad, good)]
    assert names == ["my.sbatch", "mine"]


def test_a_task_has_one_cpu_if_none_are_requested(trial: Trial) -> None:
    text = "#SBATCH --ntasks=1\nsrun bash -c 'echo cpus=$SLURM_CPUS_ON_NODE'\n"
    good = "#SBATCH --cpus-per-task=4\n" + text
    expect_rule("one-cpu", text, good)
    assert trial.run(text)[1] == "cpus=1\n"
    assert trial.run(good)[1] == "cpus=4\n"


def test_a_step_inherits_the_cpus_of_its_job_unless_22_05_to_23_11(trial: Trial) -> None:
    # With --exact the step gets only what it requests, as with task/affinity or cgroups.
    bad = "#SBATCH --cpus-per-task=4\nsrun --exact bash -c 'echo cpus=$SLURM_CPUS_ON_NODE'\n"
    good = bad.replace("srun", "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun")
    assert "srun-cpus" not in rules(good)
    cpus = 1 if trial.warned("srun-cpus", bad) else 4
    assert trial.run(bad)[1] == f"cpus={cpus}\n"
    said = trial.documented("`--cpus-per-task` of the job, in `srun`")
    assert said == ("one CPU" if cpus == 1 else "inherited")
    assert trial.run(good)[1] == "cpus=4\n"


def test_several_tasks_a_node_start_an_agent_each(trial: Trial) -> None:
    bad = "#SBATCH --ntasks-per-node=2\nsrun torchrun --help\n"
    good = "#SBATCH --ntasks-per-node=1\nsrun torchrun --help\n"
    expect_rule("several-agents", bad, good)
    counts = [trial.run(text.replace("torchrun --help", "echo agent"))[1] for text in (bad, good)]
    assert [count.count("agent") for count in counts] == [2, 1]


def test_a_script_is_run_from_a_spool_folder(trial: Trial) -> None:
    bad, good = 'cd "$(dirname "$0")"; pwd\n', 'cd "$SLURM_SUBMIT_DIR"; pwd\n'
    expect_rule("spool-path", bad, good)
    assert "spool" in trial.run(bad)[1]
    assert trial.run(good)[1] == f"{trial.folder}\n"


def test_without_a_request_the_memory_is_the_default(trial: Trial) -> None:
    bad = "#SBATCH --ntasks=1\nsrun true\n"
    good = "#SBATCH --mem=9G\n" + bad
    expect_rule("no-memory", bad, good)
    shown = [trial.cluster.squeue(trial.start(text), "%m") for text in (bad, good)]
    assert shown == ["4000M", "9G"]


def test_the_end_of_a_job_is_in_squeue_and_from_23_02_on_in_a_variable(trial: Trial) -> None:
    bad = "echo end=$SLURM_JOB_END_TIME\n"
    good = 'echo end=$(squeue -h -j "$SLURM_JOB_ID" -o %e)\n'
    assert "job-end-time" not in rules(good)
    is_empty = trial.run(bad)[1] == "end=\n"
    assert is_empty is trial.warned("job-end-time", bad)
    assert trial.documented("`SLURM_JOB_END_TIME`") == ("empty" if is_empty else "set")
    assert trial.run(good)[1].startswith("end=20")


@pytest.mark.parametrize(
    ("name", "row", "bad", "good"),
    [
        (
            "gpus-twice",
            "`--gres=gpu` with `--gpus-per-node`",
            "#SBATCH --gres=gpu:1\n#SBATCH --gpus-per-node=1\n",
            "#SBATCH --gpus-per-node=1\n",
        ),
        (
            "cpus-twice",
            "`--cpus-per-gpu` with `--cpus-per-task`",
            "#SBATCH --gpus-per-node=1\n#SBATCH --cpus-per-gpu=2\n#SBATCH --cpus-per-task=2\n",
            "#SBATCH --gpus-per-node=1\n#SBATCH --cpus-per-task=2\n",
        ),
        (
            "shared-and-exclusive",
            "`--exclusive` with `--oversubscribe`",
            "#SBATCH --exclusive\n#SBATCH --oversubscribe\n",
            "#SBATCH --exclusive\n",
        ),
    ],
)
def test_requests_that_newer_versions_refuse(
    trial: Trial, name: str, row: str, bad: str, good: str
) -> None:
    script = trial.folder / "my.sbatch"
    for text, refused in ((bad, trial.warned(name, bad)), (good, False)):
        script.write_text(f"#!/bin/bash\n{text}true\n")
        answer = trial.cluster.run("sbatch", script, cwd=trial.folder, check=False)
        assert bool(answer.returncode) is refused, answer.stderr
    assert name not in rules(good)
    assert trial.documented(row) == ("refused" if trial.warned(name, bad) else "runs")


def test_tasks_per_gpu_are_refused_beside_those_of_the_job_before_26_05(trial: Trial) -> None:
    bad = (
        "#SBATCH --gpus-per-node=2\n#SBATCH --ntasks=2\n#SBATCH --cpus-per-task=2\n"
        "srun --ntasks-per-gpu=1 --gpus=2 echo task\n"
    )
    good = bad.replace("srun", "unset SLURM_TRES_PER_TASK\nsrun")
    assert "tasks-per-gpu" not in rules(good)
    warned = trial.warned("tasks-per-gpu", bad)
    assert (trial.run(bad)[0] == "FAILED") is warned
    said = trial.documented("`srun --ntasks-per-gpu` in a job with `--cpus-per-task`")
    assert said == ("refused" if warned else "runs")
    assert trial.run(good)[1].count("task") == 2


def test_gpus_of_a_step_replace_those_of_the_job_from_24_11_on(trial: Trial) -> None:
    bad = "#SBATCH --gpus-per-node=2\nsrun --gpus=1 bash -c 'echo $CUDA_VISIBLE_DEVICES'\n"
    good = bad.replace("--gpus=1 ", "")
    assert "srun-gpus" not in rules(good)
    is_one = trial.run(bad)[1] == "0\n"
    assert is_one is trial.warned("srun-gpus", bad)
    said = trial.documented("`srun --gpus=1` in a job with `--gpus-per-node=2`")
    assert said == ("one GPU" if is_one else "both GPUs")
    assert trial.run(good)[1] == "0,1\n"
