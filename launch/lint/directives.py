"""Rules about the resources a script requests and its assumptions about Slurm."""

import re
from collections.abc import Iterator
from pathlib import Path

from launch.lint.commands import AGENT, RUNNER, WORK, is_work
from launch.lint.script import Script


def late_directive(script: Script) -> Iterator[int]:
    """An #SBATCH line below a command."""
    yield from script.late


def no_directive(script: Script) -> Iterator[int]:
    """A file without #SBATCH lines.

    Not reproduced in the tests: flags of sbatch can replace them.
    """
    if not script.directives and not script.late:
        yield 1


def variable_in_directive(script: Script) -> Iterator[int]:
    """A $ in an #SBATCH line."""
    yield from (one.number for one in script.directives.values() if "$" in one.value)


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


def no_append(script: Script) -> Iterator[int]:
    """Requeue without --open-mode=append."""
    requeue, mode = script.directive("requeue"), script.directive("open-mode")
    commands = [line.number for line in script.find(r"\bscontrol\s+requeue\b")]
    if (requeue or commands) and (mode is None or not mode.value.startswith("a")):
        yield requeue.number if requeue else commands[0]


def one_cpu(script: Script) -> Iterator[int]:
    """Training without a CPU request."""
    cpus = script.directive("cpus-per-task", "cpus-per-gpu")
    # Without srun the script has the CPUs of all its tasks.
    shared = max(script.count("ntasks") or 1, script.count("ntasks-per-node") or 1) > 1
    command = RUNNER if shared else WORK
    work = [line.number for line in script.lines if is_work(line, command)]
    if script.directives and work and cpus is None and not script.find(r"--cpus-per-(task|gpu)"):
        yield work[0]


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


def no_memory(script: Script) -> Iterator[int]:
    """No --mem of any kind."""
    work = [line.number for line in script.lines if is_work(line)]
    if work and script.directives and not script.directive(
        "mem", "mem-per-cpu", "mem-per-gpu", "exclusive"
    ):  # fmt: skip
        yield work[0]


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
