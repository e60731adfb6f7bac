"""Rules about the resources a script requests and its assumptions about Slurm."""

import re
from collections.abc import Iterator
from pathlib import Path

from launch.lint.commands import AGENT, RUNNER, WORK, is_work
from launch.lint.rule import rule
from launch.lint.script import Script


@rule("Slurm ignores #SBATCH lines below the first command", fix="move it to the top, under #!")
def late_directive(script: Script) -> Iterator[int]:
    """An #SBATCH line below a command."""
    yield from script.late


@rule(
    "no #SBATCH line: is this a batch script?",
    fix="#!/bin/bash in the first line, then #SBATCH --time=..., --cpus-per-task=...; or name the "
    "script that you give to sbatch",
)
def no_directive(script: Script) -> Iterator[int]:
    """A file without #SBATCH lines.

    Not reproduced in the tests: flags of sbatch can replace them.
    """
    if not script.directives and not script.late:
        yield 1


@rule(
    "variables in #SBATCH lines are not expanded",
    fix="pass the flag on the sbatch command line, or use %j, %x, %u in file names",
)
def variable_in_directive(script: Script) -> Iterator[int]:
    """A $ in an #SBATCH line."""
    yield from (one.number for one in script.directives.values() if "$" in one.value)


@rule(
    "the folder of --output does not exist: Slurm kills the job before its first line "
    "(JobLaunchFailure, 0:53), so a mkdir in the script comes too late",
    fix="create the folder before sbatch (mkdir -p), or keep an empty one in the repository",
    until="23.02",
)
def output_folder(script: Script) -> Iterator[int]:
    """--output or --error in a folder that does not exist, relative to the current directory."""
    chdir = script.directive("chdir")
    start = Path(chdir.value) if chdir else Path()
    for name in ("output", "error"):
        flag = script.directive(name)
        if flag and "/" in flag.value and "$" not in flag.value:
            folder = flag.value.rpartition("/")[0]
            if "%" not in folder and folder and not (start / folder).is_dir():
                yield flag.number


@rule(
    "a requeued job truncates its log: the output of the previous attempt is lost",
    fix="#SBATCH --open-mode=append",
)
def no_append(script: Script) -> Iterator[int]:
    """Requeue without --open-mode=append."""
    requeue, mode = script.directive("requeue"), script.directive("open-mode")
    commands = [line.number for line in script.find(r"\bscontrol\s+requeue\b")]
    if (requeue or commands) and (mode is None or not mode.value.startswith("a")):
        yield requeue.number if requeue else commands[0]


@rule(
    "each task gets one CPU, shared by data loaders and threads",
    fix="#SBATCH --cpus-per-task=N, about 8 per GPU",
)
def one_cpu(script: Script) -> Iterator[int]:
    """Training without a CPU request."""
    cpus = script.directive("cpus-per-task", "cpus-per-gpu")
    # Without srun the script has the CPUs of all its tasks.
    shared = max(script.count("ntasks") or 1, script.count("ntasks-per-node") or 1) > 1
    command = RUNNER if shared else WORK
    work = [line.number for line in script.lines if is_work(line, command)]
    if script.directives and work and cpus is None and not script.find(r"--cpus-per-(task|gpu)"):
        yield work[0]


@rule(
    "srun does not inherit --cpus-per-task: each task is bound to one CPU",
    fix="export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun, or srun -c",
    since="22.05",
    until="23.11",
)
def srun_cpus(script: Script) -> Iterator[int]:
    """--cpus-per-task given to sbatch but not to srun."""
    # Options of srun come before its command, which may have its own -c.
    own = (
        r"\bsrun\b((?!\b(ba|z)?sh\b|python|torchrun|accelerate).)*(--cpus-per-task|\s-c\s*[\d$\"])"
    )
    if script.directive("cpus-per-task") and not script.find(r"\bSRUN_CPUS_PER_TASK="):
        for line in script.lines:
            if is_work(line, r"srun\b") and not line.has(own):
                yield line.number
                return


@rule(
    "no host memory is requested: on a shared node the partition's default applies",
    fix="#SBATCH --mem=64G (per node), as much as the data loaders need",
    level="remark",
)
def no_memory(script: Script) -> Iterator[int]:
    """No --mem of any kind."""
    work = [line.number for line in script.lines if is_work(line)]
    if work and script.directives and not script.directive(
        "mem", "mem-per-cpu", "mem-per-gpu", "exclusive"
    ):  # fmt: skip
        yield work[0]


@rule(
    "Slurm runs a copy of the script from its spool directory, so this path points there",
    fix='use "$SLURM_SUBMIT_DIR"',
)
def spool_path(script: Script) -> Iterator[int]:
    """`dirname "$0"` and similar in a script that does not use SLURM_SUBMIT_DIR."""
    if not script.find("SLURM_SUBMIT_DIR"):
        pattern = r"\b(dirname|realpath|readlink)\b[^|;]*\$\{?(0\b|BASH_SOURCE)|\$\{0%"
        yield from (line.number for line in script.find(pattern))


@rule(
    "SLURM_JOB_END_TIME does not exist",
    fix='squeue -h -j "$SLURM_JOB_ID" -o %e, or count from the requested time limit',
    until="23.02",
)
def job_end_time(script: Script) -> Iterator[int]:
    """SLURM_JOB_END_TIME."""
    yield from (line.number for line in script.find(r"\bSLURM_JOB_END_TIME\b"))


@rule(
    "sbatch refuses --gres=gpu together with --gpus-per-node",
    fix="keep --gpus-per-node=TYPE:N alone",
    since="26.05",
)
def gpus_twice(script: Script) -> Iterator[int]:
    """GPUs requested both as a generic resource and by their own flag."""
    gres = script.directive("gres")
    if gres and gres.value.startswith("gpu") and script.directive("gpus-per-node"):
        yield gres.number


@rule(
    "sbatch refuses --cpus-per-gpu together with --cpus-per-task",
    fix="keep --cpus-per-task=N alone",
    since="22.05",
)
def cpus_twice(script: Script) -> Iterator[int]:
    """CPUs requested both per GPU and per task."""
    if script.directive("cpus-per-task") and (per_gpu := script.directive("cpus-per-gpu")):
        yield per_gpu.number


@rule(
    "sbatch refuses --exclusive together with --oversubscribe",
    fix="keep --exclusive alone",
    since="23.02",
)
def shared_and_exclusive(script: Script) -> Iterator[int]:
    """A node requested both for this job alone and with others."""
    if script.directive("exclusive") and (shared := script.directive("oversubscribe", "s")):
        yield shared.number


@rule(
    "sbatch sets SLURM_TRES_PER_TASK, and srun refuses --ntasks-per-gpu beside it",
    fix="srun --ntasks=N, or unset SLURM_TRES_PER_TASK before srun",
    since="23.11",
    until="26.05",
)
def tasks_per_gpu(script: Script) -> Iterator[int]:
    """Tasks per GPU given to srun in a job that requests CPUs or GPUs per task.

    Measured: 24.11 refuses them, 26.05 does not.
    """
    per_task = script.directive("cpus-per-task", "gpus-per-task")
    if per_task and not script.find(r"\bunset\b.*\bSLURM_TRES_PER_TASK\b"):
        found = script.find(r"\bsrun\b[^|;&]*--ntasks-per-gpu")
        yield from (line.number for line in found)


@rule(
    "--gpus of srun replaces --gpus-per-node of the job: the step gets so many GPUs in all",
    fix="leave it away: a step has all GPUs of its job",
    level="remark",
    since="24.11",
)
def srun_gpus(script: Script) -> Iterator[int]:
    """GPUs per node requested for the job, GPUs in total for its step."""
    if script.directive("gpus-per-node", "gres"):
        found = script.find(r"\bsrun\b[^|;&]*\s(--gpus[= ]|-G)")
        yield from (line.number for line in found)


@rule(
    "the --json output of Slurm differs between versions, and may be missing",
    fix="request fixed fields: squeue -h -o '%i|%T', sacct -n --parsable2 --format=JobID,State",
)
def json_output(script: Script) -> Iterator[int]:
    """--json of a Slurm command.

    Measured, not reproduced in the tests: a single Slurm version has a single format.
    """
    pattern = r"\b(squeue|sacct|sinfo|scontrol|sacctmgr)\b[^|;&]*--(json|yaml)"
    yield from (line.number for line in script.find(pattern))


@rule(
    "OMP_NUM_THREADS is unset: torchrun sets it to 1 for several ranks per node but not for one, "
    "which shows up as a false speedup",
    fix="export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / RANKS_PER_NODE))",
)
def omp_threads(script: Script) -> Iterator[int]:
    """torchrun without OMP_NUM_THREADS."""
    agents = script.find(AGENT)
    if agents and not script.find(r"\bOMP_NUM_THREADS="):
        yield agents[0].number


@rule(
    "several tasks per node each start a torchrun: the agents claim the same GPUs",
    fix="srun --ntasks-per-node=1 and --nproc-per-node=GPUS, one agent per node",
)
def several_agents(script: Script) -> Iterator[int]:
    """More than one task per node under `srun torchrun`."""
    tasks, nodes = script.count("ntasks"), script.count("nodes") or 1
    several = (script.count("ntasks-per-node") or 1) > 1 or (tasks or 1) > nodes
    if several:
        for line in script.find(AGENT):
            runner = line.has(RUNNER) or any(one.has(RUNNER) for one in script.lines)
            own = r"--ntasks-per-node[= ]1\b|--ntasks[= ]|\s-n\s*\S"
            if runner and not re.search(own, line.text):
                yield line.number
