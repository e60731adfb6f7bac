"""Batch scripts as labs write them, by plain sbatch and by `ditbench submit`, on a real Slurm.

batch_scripts/ holds scripts with the habits of public ones, and stand-ins for programs in bin/.
"""

import re
from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.script_project import DITBENCH, SCRIPTS, Project, make_project

ARGUMENTS = {"defaults": ["--extra", "a b"], "arguments": ["model", "--accumulation=4 --x"]}
REMARK = re.compile(rb"^(?:\d: )?a remark on stderr\n", re.MULTILINE)
# What Slurm says if the nodes of a first step are not free at once.
RETRY = re.compile(rb"^srun: (?:Job \d+ step creation|Step created for).*\n", re.MULTILINE)
# What is varied in each script; None if it is refused, with a part of the sentence.
VARIED = {"hydra": "optim.lr", "defaults": "LR", "nanogpt": "LR", "python_script": None}


def outputs(folder: Path, job: str) -> dict[str, bytes]:
    """Return what a job left in a folder, with the job's number and its folders replaced."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    return {
        str(path.relative_to(folder)).replace(job, "JOB"): plain(path.read_bytes(), folder, job)
        for path in files
    }


def plain(content: bytes, folder: Path, job: str) -> bytes:
    """Return output without its job; lines of stderr, which srun carries apart, are at the end."""
    content = RETRY.sub(b"", content).replace(str(folder).encode(), b"FOLDER")
    content = re.sub(rb"/\S+(?=/slurm_script)", b"COPY", content).replace(job.encode(), b"JOB")
    return REMARK.sub(b"", content) + b"".join(sorted(REMARK.findall(content)))


def events(run: RunFolder) -> list[str]:
    return [str(record["event"]) for record in run.records() if "event" in record]


def test_scripts_leave_the_same_output_state_and_exit_code_as_by_plain_sbatch(
    cluster: Cluster, several_jobs: None, tmp_path: Path
) -> None:
    jobs = {}
    for script in sorted(SCRIPTS.glob("*.sbatch")):
        name = script.stem
        first, own = (make_project(cluster, tmp_path / name / how) for how in ("plain", "own"))
        words = ARGUMENTS.get(name, [])
        run, [job] = own.submit(script.name, "--", "--", *words)
        jobs[name] = first, first.sbatch(first.folder / script.name, *words), own, job, run
    assert len(jobs) >= 12
    for name, (first, one, own, other, run) in jobs.items():
        states = [cluster.accounted(job, "ExitCode", "JobName", timeout=90) for job in (one, other)]
        assert states[0] == states[1], name
        before, after = outputs(first.folder, one), outputs(own.folder, other)
        assert before == after, name
        is_good = states[0]["State"] == "COMPLETED"
        assert events(run) == ["queued", "started", "done" if is_good else "failed"], name
        assert (run.attempt(1) / "slurm_script").read_bytes() == (
            SCRIPTS / f"{name}.sbatch"
        ).read_bytes()
        printed = b"".join(sorted(after[file] for file in after.keys() - {*outputs(SCRIPTS, "-")}))
        log = plain(run_log(run), own.folder, other)
        assert all(line in printed for line in log.splitlines()), name
    failed = jobs["fails"][4]
    assert [*failed.records()][-1]["reason"] == "oom"


def run_log(run: RunFolder) -> bytes:
    return (run.attempt(1) / "output.log").read_bytes()


def test_one_value_is_varied_in_every_script(project: Project) -> None:
    for script in sorted(SCRIPTS.glob("*.sbatch")):
        name = VARIED.get(script.stem, "--lr")
        if name is None:
            text = project.ditbench("plan", script.name, "--vary", "--lr=1,2", check=False)
            assert "--lr does not occur in the script" in text
            continue
        arguments = ARGUMENTS.get(script.stem, [])
        varied = ["--vary", f"{name}=0.5,0.001", "--", "--", *arguments]
        study, jobs = project.submit(script.name, *varied)
        for job in jobs:
            project.cluster.wait(job, "COMPLETED", "FAILED", timeout=90)
        last = {}
        for cell in study.path.glob("cells/*"):
            losses = re.findall(r"step 20 loss (\S+)", run_log(RunFolder(cell)).decode())
            last[cell.name] = set(losses)
        assert sorted(map(sorted, last.values())) == [["0.0909"], ["0.9804"]], script.stem
        assert (project.folder / script.name).read_bytes() == script.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/bash\r\necho hello\r\n",
        "echo no shebang\n",
        "#!/bin/bash\n#SBATCH --nodes=many\necho hello\n",
        "#!/bin/bash\n#SBATCH --array=0-3\necho $SLURM_ARRAY_TASK_ID\n",
        "#!/bin/bash\n#SBATCH -W\necho hello\n",
        "#!/bin/bash\nme=$(scontrol show job $SLURM_JOB_ID | sed -n 's/ *Command=//p')\n",
        "",
    ],
)
def test_a_script_that_sbatch_refuses_is_refused_and_leaves_nothing(
    project: Project, text: str
) -> None:
    project.write("odd.sbatch", text)
    printed = project.ditbench("submit", "odd.sbatch", check=False)
    assert "Traceback" not in printed
    assert "follow it" not in printed
    assert not list(project.logs.glob("odd-*"))


def test_hostile_scripts_run_as_under_sbatch(project: Project) -> None:
    texts = {
        "quotes 'and' $(touch hacked).sbatch": "#!/bin/bash\necho \"$0\" | sed 's/.*\\///'\n",
        "long.sbatch": "#!/bin/bash\n" + "".join(f"echo line {i}\n" for i in range(10_000)),
        "bytes.sbatch": "#!/bin/bash\nprintf '\\377\\0\\n'; echo 'ü' # \n",
        "no_end.sbatch": "#!/bin/bash\n(sleep 0.5; echo late) & echo first; exec echo last",
        "shell.sbatch": "#!/bin/bash\n[[ $- == *i* ]]; echo $?; umask; ulimit -c; pwd; echo $#\n",
        "stdin.sbatch": "#!/bin/bash\ncat; echo read $?; trap\nkill -l 9\nenv | grep -c PYTHON\n",
        "group.sbatch": "#!/bin/bash\ntrap 'echo t; trap - TERM' TERM\nkill 0\necho after\n",
        "environment.sbatch": "#!/bin/bash\nenv | grep -vE '^(LOGS|SLURM_JOBID|SLURM_JOB_(ID|"
        "SLUID|NAME|START_TIME|END_TIME)|SLURMD_|SLURM_TASK_PID|_)=' | LC_ALL=C sort\n",
        "indented.sbatch": "#!/bin/bash\n  # a comment\n\n#PBS -l walltime=1\n#SBATCH -c 2\n"
        "echo $SLURM_CPUS_PER_TASK\n",
        "latin.sbatch": "#!/bin/bash\n# Caf\udce9\necho 'Caf\udce9'\n",
        "slurm_script": "#!/bin/bash\necho $SLURM_JOB_NAME\n",
        "code.sbatch": "#!/bin/bash\necho x\nexit 3\n",
        "dies.sbatch": "#!/bin/bash\necho x\nkill -SEGV $$\n",
    }
    argument = "$(touch hacked) 'a'\n\"b"
    pairs = []
    for name, text in texts.items():
        script = project.write(name, text)
        pairs.append(
            (name, project.sbatch(script, argument), project.submit(name, "--", "--", argument))
        )
    for name, first, (run, [job]) in pairs:
        states = [project.cluster.accounted(one, "ExitCode", timeout=90) for one in (first, job)]
        assert states[0] == states[1], name
        one, other = (project.folder / f"slurm-{number}.out" for number in (first, job))
        assert one.read_text(errors="replace") == other.read_text(errors="replace"), name
        assert one.read_bytes() == other.read_bytes(), name
        assert run_log(run) == other.read_bytes(), name
    assert not list(project.folder.parent.rglob("hacked"))


def test_a_script_gets_each_signal_once(project: Project) -> None:
    text = (
        "#!/bin/bash\ntrap 'echo usr1' USR1\ntrap 'echo term; exit 0' TERM\n"
        "echo begun\nwhile :; do sleep 0.1; done\n"
    )
    script = project.write("traps.sbatch", text)
    plain, (run, [job]) = project.sbatch(script), project.submit("traps.sbatch")
    for number in (plain, job):
        file = project.folder / f"slurm-{number}.out"
        wait_until(lambda file=file: file.exists() and "begun" in file.read_text(), timeout=60)
        project.cluster.run("scancel", "--batch", "--signal=USR1", number)
        wait_until(lambda file=file: "usr1" in file.read_text(), timeout=20)
        project.cluster.cancel(number)
        wait_until(lambda file=file: "term\n" in file.read_text(), timeout=20)
    own = (project.folder / f"slurm-{job}.out").read_text()
    assert own.count("usr1\n") == own.count("term\n") == 1
    assert (project.folder / f"slurm-{plain}.out").read_text().count("term\n") == 1
    wait_until(lambda: events(run)[-1] == "stopped", timeout=20)


RESUMES = """#!/bin/bash
#SBATCH --time=5
torchrun train.py --lr 0.1 --steps 400 --pause 0.05 | cat
"""


def test_a_script_near_its_limit_is_requeued_with_its_flags_to_resume(project: Project) -> None:
    project.write("long.sbatch", RESUMES)
    run, [job] = project.submit("long.sbatch", "--resume=--ckpt {newest:out/ckpt-*.pt}")
    wait_until(lambda: (project.folder / "out" / "ckpt-40.pt").exists(), timeout=60)
    project.cluster.warn(job)
    project.cluster.end_requeue_hold(job, timeout=60)
    project.cluster.wait(job, "COMPLETED", timeout=120)
    assert events(run) == ["queued", "started", "saved", "paused", "started", "done"]
    paused = next(record for record in run.records() if record.get("event") == "paused")
    assert re.search(r"the work of \d+ s since the last checkpoint is lost", paused["message"])
    steps = [
        [int(step) for step in re.findall(r"^step (\d+) ", log.read_text(), re.MULTILINE)]
        for log in sorted(run.path.glob("attempts/*/output.log"))
    ]
    # A checkpoint of the last second before the kill may be cut short: the one before it is used.
    assert steps[1][0] - 1 in (30, 40, 50, 60)
    assert steps[1][0] - 1 <= steps[0][-1]
    assert steps[1][-1] == 400
    assert "--ckpt out/ckpt-" in (run.attempt(2) / "slurm_script").read_text()


def test_without_resume_the_limit_ends_a_script_and_the_end_says_what_to_type(
    project: Project,
) -> None:
    # Slurm looks for jobs at their limits every 30 s only.
    project.write("long.sbatch", RESUMES.replace("--steps 400", "--steps 2000"))
    run, [job] = project.submit("long.sbatch")
    wait_until(lambda: (project.folder / "out" / "ckpt-10.pt").exists(), timeout=60)
    project.cluster.bring_limit_near(job, seconds=1)
    project.cluster.wait(job, "TIMEOUT", timeout=90)
    wait_until(lambda: events(run)[-1] != "started", timeout=20)
    last = [*run.records()][-1]
    assert last["reason"] == "timeout"
    assert "--resume=" in last["message"]
    assert "--resume=" in project.ditbench("why", str(run.path))


def test_a_snapshot_runs_in_a_copy_of_the_repository(project: Project) -> None:
    (project.folder / ".gitignore").write_text("venv\n")
    project.cluster.run("git", "init", "-q", ".", cwd=project.folder)
    run, [job] = project.submit("dit.sbatch", "--snapshot")
    project.cluster.wait(job, "COMPLETED", timeout=90)
    assert events(run)[-1] == "done"
    copy = run.path / "code"
    assert (copy / "venv").resolve() == project.folder / "venv"
    assert list(copy.rglob(f"*{job}*"))
    assert not list(project.folder.rglob(f"*{job}*"))


def test_a_script_runs_in_a_session_of_salloc(project: Project) -> None:
    answer = project.cluster.run(
        "salloc", "--quiet", "--gpus-per-node=a40:1", "bash", "-c",
        'out=$("$@") && echo "$out" && until grep -q "\\"done\\"" '
        '"$(echo "$out" | sed -n "s/^run: //p")/metrics.jsonl"; do sleep 0.2; done',
        "bash", *DITBENCH, "submit", "dit.sbatch", "--local",
        cwd=project.folder, env=project.environment | {"LOGS": str(project.logs)},
    )  # fmt: skip
    run = RunFolder(Path(answer.stdout.splitlines()[0].removeprefix("run: ")))
    assert events(run) == ["queued", "started", "done"]
    assert run.entries()[0]["slurm"]["job"]


def test_flags_of_the_command_line_come_before_variables_and_directives(project: Project) -> None:
    project.write(
        "who.sbatch",
        "#!/bin/bash\n#SBATCH --comment=directive -t 3\nscontrol show job -o $SLURM_JOB_ID\n",
    )
    comment = 'it\'s "mine" $(x)'
    variables = {"LOGS": str(project.logs), "SBATCH_PARTITION": "debug", "SBATCH_TIMELIMIT": "4"}
    answer = project.cluster.run(
        *DITBENCH, "submit", "who.sbatch", "--", f"--comment={comment}", "--partition=high",
        cwd=project.folder, env=project.environment | variables,
    )  # fmt: skip
    job = answer.stdout.splitlines()[1].removeprefix("job: ")
    project.cluster.wait(job, "COMPLETED", timeout=60)
    shown = (project.folder / f"slurm-{job}.out").read_text()
    assert f"Comment={comment} " in shown
    assert " Partition=high " in shown
    assert " TimeLimit=00:04:00 " in shown
