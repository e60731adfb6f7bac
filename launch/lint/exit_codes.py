"""Rules about how a script ends: with the exit code of its work, and after its work."""

from collections.abc import Iterator

from launch.lint.commands import in_background, in_pipe, is_strict, is_work, keeps_status
from launch.lint.lint import rule
from launch.lint.script import Script, ScriptLine

_WAITS_FOR = r"\bwait\s+(-n\b|[\"$%])"


@rule(
    "the exit code of the work is lost: what follows succeeds, and a failed job is COMPLETED",
    mend='status=0; srun ... || status=$?, then exit "$status" as the last line; or set -e',
)
def lost_exit_code(script: Script) -> Iterator[int]:
    """Commands after the work, none of which has its exit code."""
    main = script.main
    held = [i for i, line in enumerate(main) if _is_held(line)]
    if not held or is_strict(script):
        return
    after = main[held[-1] + 1 :]
    shell_words = r"^(fi|done|esac|else|;;|\}|\))"
    said = [line for line in after if not line.has(shell_words)]
    if said and not said[0].has(r"\$\?") and not any(line.has(r"exit\s+\"?\$") for line in said):
        yield main[held[-1]].number


def _is_held(line: ScriptLine) -> bool:
    """Whether the line waits for work to end, and drops the result."""
    waits = is_work(line) and not in_background(line)
    return (waits or line.has(_WAITS_FOR)) and not keeps_status(line)


@rule(
    "of a pipeline the shell keeps the last exit code, that of tee: a failed job is COMPLETED",
    mend="set -o pipefail, or redirect instead: srun ... >>log 2>&1",
)
def lost_in_pipe(script: Script) -> Iterator[int]:
    """Work that is piped into something without pipefail."""
    if not script.find(r"^set\s.*pipefail"):
        yield from (line.number for line in script.lines if is_work(line) and in_pipe(line))


@rule(
    "a bare wait returns 0 whatever its jobs returned: a failed job is COMPLETED",
    mend='srun ... & pid=$!, then wait "$pid"',
)
def bare_wait(script: Script) -> Iterator[int]:
    """`wait` for everything, and nothing else."""
    if script.find(_WAITS_FOR) or not _in_background(script):
        return
    yield from (line.number for line in script.find(r"(^|[;&]\s*)wait\s*($|;)"))


@rule(
    "nothing waits for what runs in the background: the script ends, and Slurm kills its steps",
    mend='srun ... & pid=$!, then wait "$pid"',
)
def no_wait(script: Script) -> Iterator[int]:
    """Work in the background and no wait."""
    if not script.find(r"\bwait\b"):
        yield from _in_background(script)


def _in_background(script: Script) -> list[int]:
    return [line.number for line in script.main if is_work(line) and in_background(line)]


@rule(
    "a signal ends this wait at once (128 + its number): the script goes on, and ends, while the "
    "step still saves",
    mend='while kill -0 "$pid" 2>/dev/null; do wait "$pid"; status=$?; done',
)
def single_wait(script: Script) -> Iterator[int]:
    """One wait, outside any loop, in a script whose trap returns to it."""
    waits = script.find(r"\bwait\b")
    traps = [
        trap
        for trap in script.traps("USR1", "USR2", "TERM", "INT")
        if trap.does and not any(line.has(r"\b(wait|exit)\b") for line in trap.does)
    ]
    loops = script.find(r"^(while|until)\b")
    if traps and len(waits) == 1 and not loops and _in_background(script):
        yield waits[0].number


RULES = (lost_exit_code, lost_in_pipe, bare_wait, no_wait, single_wait)
