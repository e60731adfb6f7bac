"""How rules tell commands apart: what is work, what is in the background, what keeps a status."""

import re

from launch.lint.script import Script, ScriptLine

RUNNER = r"\b(srun|mpirun|mpiexec)\b"
AGENT = r"\b(torchrun|torch\.distributed\.(run|launch))\b"

# Where a command begins: at the start, after ; & | ( and words of the shell, after VARIABLE=value.
_BEGIN = r"(?:^|[;&|(!]\s*|\b(?:then|do|else|time|exec|command)\s+)(?:[A-Za-z_]\w*=\S*\s+)*"
_WORK = (
    r"(?:srun\b|mpirun\b|mpiexec\b|torchrun\b|deepspeed\b|accelerate\s+launch\b"
    r"|python[\d.]*\s+(?:-u\s+)?(?:-m\s|\S+\.py\b))"
)
_IN_SINGLE_QUOTES = re.compile(r"'[^']*'")
# `head=$(srun hostname)` asks for something, it is not what the job is for.
_SUBSTITUTION = re.compile(r"\$\([^()]*(?:\([^()]*\)[^()]*)*\)")
_IN_QUOTES = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")


def is_work(line: ScriptLine, command: str = _WORK) -> bool:
    """Whether the line runs what the job is for; `command` narrows it."""
    text = _SUBSTITUTION.sub("_", _IN_SINGLE_QUOTES.sub("''", line.text))
    return re.search(_BEGIN + command, text) is not None


def bare(line: ScriptLine) -> str:
    """The line with what stands in quotes left out."""
    return _IN_QUOTES.sub('""', line.text)


def in_background(line: ScriptLine) -> bool:
    """Whether a command of the line is sent to the background."""
    return re.search(r"(?<![&>])&(?![&>\d])", bare(line)) is not None


def in_pipe(line: ScriptLine) -> bool:
    """Whether the line is a pipeline."""
    return re.search(r"(?<!\|)\|(?!\|)", bare(line)) is not None


def keeps_status(line: ScriptLine) -> bool:
    """Whether the line itself does something with the exit code."""
    return line.has(r"\|\||&&|\$\?|^(el)?if\b|^while\b|^until\b|\bexec\b|^!")


def is_strict(script: Script) -> bool:
    """Whether the script ends where a command fails."""
    return bool(script.find(r"^set\s+(-\S+\s+)*-[A-Za-z]*e|^set\s.*errexit")) or bool(
        re.search(r"\s-[a-z]*e", script.shebang)
    )


def sources_others(script: Script) -> bool:
    """Whether parts of it stand in files that it reads, and are not seen here."""
    return bool(script.find(r"(?:^|[;&]\s*)(source|\.)\s+\S"))
