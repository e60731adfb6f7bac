"""Rules about how a script ends: after its work, and with the exit code of its work."""

from collections.abc import Iterator

from launch.lint.commands import in_background, in_pipe, is_strict, is_work, keeps_status
from launch.lint.script import Script, ScriptLine

_WAITS_FOR = r"\bwait\s+(-n\b|[\"$%])"


def lost_exit_code(script: Script) -> Iterator[int]:
    """Commands after the work, none of which uses its exit code."""
    main = script.main
    waits = [i for i, line in enumerate(main) if _drops_status(line)]
    if not waits or is_strict(script):
        return
    after = main[waits[-1] + 1 :]
    shell_words = r"^(fi|done|esac|else|;;|\}|\))"
    later = [line for line in after if not line.has(shell_words)]
    if later and not later[0].has(r"\$\?") and not any(line.has(r"exit\s+\"?\$") for line in later):
        yield main[waits[-1]].number


def _drops_status(line: ScriptLine) -> bool:
    """Return whether the line waits for the work and discards its exit code."""
    runs = is_work(line) and not in_background(line)
    return (runs or line.has(_WAITS_FOR)) and not keeps_status(line)


def unchecked_environment(script: Script) -> Iterator[int]:
    """An environment that is activated for the work, in a script that goes on after a failure."""
    activates = r"^(conda|mamba|micromamba)\s+activate\b|^(source|\.)\s+(\S*/)?activate\b"
    if not is_strict(script) and any(is_work(line) for line in script.lines):
        yield from [line.number for line in script.find(activates) if not keeps_status(line)][:1]


def lost_in_pipe(script: Script) -> Iterator[int]:
    """Work piped into another command without pipefail."""
    if not script.find(r"^set\s.*pipefail"):
        yield from (line.number for line in script.lines if is_work(line) and in_pipe(line))


def bare_wait(script: Script) -> Iterator[int]:
    """Only `wait` without a pid."""
    if script.find(_WAITS_FOR) or not _in_background(script):
        return
    yield from (line.number for line in script.find(r"(^|[;&]\s*)wait\s*($|;)"))


def no_wait(script: Script) -> Iterator[int]:
    """Background work without a wait."""
    if not script.find(r"\bwait\b"):
        yield from _in_background(script)


def _in_background(script: Script) -> list[int]:
    return [line.number for line in script.main if is_work(line) and in_background(line)]


def single_wait(script: Script) -> Iterator[int]:
    """One wait, outside any loop, in a script with a trap that returns to it."""
    waits = script.find(r"\bwait\b")
    traps = [
        trap
        for trap in script.traps("USR1", "USR2", "TERM", "INT")
        if trap.handler and not any(line.has(r"\b(wait|exit)\b") for line in trap.handler)
    ]
    loops = script.find(r"^(while|until)\b")
    if traps and len(waits) == 1 and not loops and _in_background(script):
        yield waits[0].number
