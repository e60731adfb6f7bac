"""Rules about what a script asks Slurm for, and what it takes Slurm to give."""

import re
from collections.abc import Iterator
from pathlib import Path

from launch.lint.commands import AGENT, RUNNER, is_work
from launch.lint.lint import rule
from launch.lint.script import Script


@rule(
    "Slurm reads #SBATCH lines only above the first command: this one does nothing",
    mend="move it up, under #!",
)
def late_directive(script: Script) -> Iterator[int]:
    """An #SBATCH line below a command."""
    yield from script.late


@rule(
    "a variable in an #SBATCH line is not expanded: it is taken letter by letter",
    mend="give the flag to sbatch itself, or use %j, %x, %u in file names",
)
def variable_in_directive(script: Script) -> Iterator[int]:
    """A $ in an #SBATCH line."""
    yield from (one.number for one in script.directives.values() if "$" in one.value)


@rule(
    "the folder of --output does not exist: Slurm kills the job before its first line "
    "(JobLaunchFailure, 0:53), so a mkdir in the script comes too late",
    mend="make the folder before sbatch (mkdir -p), or keep an empty one in the repository",
)
def output_folder(script: Script) -> Iterator[int]:
    """--output or --error into a folder that is not there, seen from where sbatch would be run."""
    chdir = script.asks("chdir")
    start = Path(chdir.value) if chdir else Path()
    for name in ("output", "error"):
        asked = script.asks(name)
        if asked and "/" in asked.value and "$" not in asked.value:
            folder = asked.value.rpartition("/")[0]
            if "%" not in folder and folder and not (start / folder).is_dir():
                yield asked.number


@rule(
    "a requeued job starts with an empty log: what the attempt before said is lost",
    mend="#SBATCH --open-mode=append",
)
def no_append(script: Script) -> Iterator[int]:
    """Requeue without --open-mode=append."""
    asked, mode = script.asks("requeue"), script.asks("open-mode")
    requeues = [line.number for line in script.find(r"\bscontrol\s+requeue\b")]
    if (asked or requeues) and (mode is None or not mode.value.startswith("a")):
        yield asked.number if asked else requeues[0]


@rule(
    "each task has one CPU: data loaders and threads share it",
    mend="#SBATCH --cpus-per-task=N, about 8 for each GPU",
)
def one_cpu(script: Script) -> Iterator[int]:
    """Training without a word on CPUs."""
    asked = script.asks("cpus-per-task", "cpus-per-gpu")
    work = [line.number for line in script.lines if is_work(line)]
    if script.directives and work and asked is None and not script.find(r"--cpus-per-(task|gpu)"):
        yield work[0]


@rule(
    "since Slurm 22.05 srun does not take over --cpus-per-task: a task is bound to one CPU",
    mend="export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun, or srun -c",
)
def srun_cpus(script: Script) -> Iterator[int]:
    """--cpus-per-task asked of sbatch and not of srun."""
    # Options of srun stand before its command, which may have a -c of its own.
    own = (
        r"\bsrun\b((?!\b(ba|z)?sh\b|python|torchrun|accelerate).)*(--cpus-per-task|\s-c\s*[\d$\"])"
    )
    if script.asks("cpus-per-task") and not script.find(r"\bSRUN_CPUS_PER_TASK="):
        for line in script.lines:
            if is_work(line, r"srun\b") and not line.has(own):
                yield line.number
                return


@rule(
    "no host memory is asked for: on a shared node the partition's default decides",
    mend="#SBATCH --mem=64G (per node), as much as the data loaders need",
    level="remark",
)
def no_memory(script: Script) -> Iterator[int]:
    """No --mem of any kind."""
    work = [line.number for line in script.lines if is_work(line)]
    if work and script.directives and not script.asks(
        "mem", "mem-per-cpu", "mem-per-gpu", "exclusive"
    ):  # fmt: skip
        yield work[0]


@rule(
    "of a batch script Slurm runs a copy in its spool folder: this path leads there",
    mend='use "$SLURM_SUBMIT_DIR"',
)
def spool_path(script: Script) -> Iterator[int]:
    """`dirname "$0"` and its like, where nothing looks at SLURM_SUBMIT_DIR."""
    if not script.find("SLURM_SUBMIT_DIR"):
        pattern = r"\b(dirname|realpath|readlink)\b[^|;]*\$\{?(0\b|BASH_SOURCE)|\$\{0%"
        yield from (line.number for line in script.find(pattern))


@rule(
    "SLURM_JOB_END_TIME does not exist in Slurm 22.05 and older",
    mend='squeue -h -j "$SLURM_JOB_ID" -o %e, or count from the time limit that was asked for',
)
def job_end_time(script: Script) -> Iterator[int]:
    """SLURM_JOB_END_TIME, which 22.05 does not set."""
    yield from (line.number for line in script.find(r"\bSLURM_JOB_END_TIME\b"))


@rule(
    "--json of Slurm changes its shape from version to version, and may be missing",
    mend="fixed fields: squeue -h -o '%i|%T', sacct -n --parsable2 --format=JobID,State",
)
def json_output(script: Script) -> Iterator[int]:
    """--json of a Slurm command.

    Measured, not reproduced: one Slurm has one shape.
    """
    pattern = r"\b(squeue|sacct|sinfo|scontrol|sacctmgr)\b[^|;&]*--(json|yaml)"
    yield from (line.number for line in script.find(pattern))


@rule(
    "OMP_NUM_THREADS is unset: torchrun makes it 1 for several ranks a node and leaves it open for "
    "one, which compares as a speed-up that is none",
    mend="export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / RANKS_PER_NODE))",
)
def omp_threads(script: Script) -> Iterator[int]:
    """torchrun without OMP_NUM_THREADS."""
    agents = script.find(AGENT)
    if agents and not script.find(r"\bOMP_NUM_THREADS="):
        yield agents[0].number


@rule(
    "several tasks a node, and each starts a torchrun: two agents claim the same GPUs",
    mend="srun --ntasks-per-node=1 and --nproc-per-node=GPUS, one agent for each node",
)
def several_agents(script: Script) -> Iterator[int]:
    """More than one task a node under `srun torchrun`."""
    tasks, nodes = script.count("ntasks"), script.count("nodes") or 1
    several = (script.count("ntasks-per-node") or 1) > 1 or (tasks or 1) > nodes
    if several:
        for line in script.find(AGENT):
            runner = line.has(RUNNER) or any(one.has(RUNNER) for one in script.lines)
            own = r"--ntasks-per-node[= ]1\b|--ntasks[= ]|\s-n\s*\S"
            if runner and not re.search(own, line.text):
                yield line.number


RULES = (
    late_directive, variable_in_directive, output_folder, no_append, one_cpu, srun_cpus,
    no_memory, spool_path, job_end_time, json_output, omp_threads, several_agents,
)  # fmt: skip
