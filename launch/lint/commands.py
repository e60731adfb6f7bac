"""Classify commands: the job's work, background commands, pipelines, kept exit codes."""

import re

from launch.lint.script import Script, ScriptLine

RUNNER = r"\b(srun|mpirun|mpiexec)\b"
AGENT = r"\b(torchrun|torch\.distributed\.(run|launch))\b"

# A command begins at the start of the line, after ; & | ( or a shell keyword, or after
# VARIABLE=value.
_BEGIN = (
    r"(?:^|[;&|(!]\s*|\b(?:then|do|else|time|exec|command|nohup|stdbuf\s+-\S+)\s+)"
    r"(?:[A-Za-z_]\w*=\S*\s+)*"
)
WORK = (
    r"(?:srun\b|mpirun\b|mpiexec\b|torchrun\b|deepspeed\b|accelerate\s+launch\b"
    r"|(?:apptainer|singularity)\s+(?:exec|run)\b|(?:uv|conda|micromamba|poetry)\s+run\b"
    r"|python[\d.]*\s+(?:-u\s+)?(?:-m\s|\S+\.py\b))"
)
_IN_SINGLE_QUOTES = re.compile(r"'[^']*'")
# `head=$(srun hostname)` is a query, not the job's work.
_SUBSTITUTION = re.compile(r"\$\([^()]*(?:\([^()]*\)[^()]*)*\)")
_IN_QUOTES = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")


def is_work(line: ScriptLine, command: str = WORK) -> bool:
    """Return whether the line runs the job's work; `command` narrows the pattern."""
    text = _SUBSTITUTION.sub("_", _IN_SINGLE_QUOTES.sub("''", line.text))
    return re.search(_BEGIN + command, text) is not None


def work_begins(text: str) -> int | None:
    """Return where the last command of work in a text begins; None without one."""
    found = [match.start(1) for match in re.finditer(f"{_BEGIN}({WORK})", text)]
    return found[-1] if found else None


def unquoted(line: ScriptLine) -> str:
    """Return the line with the contents of quotes removed."""
    return _IN_QUOTES.sub('""', line.text)


def in_background(line: ScriptLine) -> bool:
    """Return whether the line sends a command to the background."""
    return re.search(r"(?<![&>])&(?![&>\d])", unquoted(line)) is not None


def in_pipe(line: ScriptLine) -> bool:
    """Return whether the line is a pipeline."""
    return re.search(r"(?<!\|)\|(?!\|)", unquoted(line)) is not None


def keeps_status(line: ScriptLine) -> bool:
    """Return whether the line itself uses the exit code."""
    replaced = r"(?<!apptainer )(?<!singularity )\bexec\b"
    return line.has(rf"\|\||&&|\$\?|^(el)?if\b|^while\b|^until\b|{replaced}|^!")


def is_strict(script: Script) -> bool:
    """Return whether the script exits when a command fails."""
    return bool(script.find(r"^set\s+(-\S+\s+)*-[A-Za-z]*e|^set\s.*errexit")) or bool(
        re.search(r"\s-[a-z]*e", script.shebang)
    )


def sources_others(script: Script) -> bool:
    """Return whether the script sources other files, which the rules do not read."""
    return bool(script.find(r"(?:^|[;&]\s*)(source|\.)\s+\S"))
