"""Rules about the signal before the time limit, and about requeueing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from launch.lint.commands import AGENT, RUNNER, in_background, is_work, sources_others
from launch.lint.script import Script, ScriptLine
from launch.slurm.client import parse_duration

# A run of this length is too much to lose.
_LONG_H = 4
_REQUEUE = r"\bscontrol\s+requeue\b"


@dataclass(frozen=True, kw_only=True)
class _SignalDirective:
    """The --signal directive: its line, signal name, lead in seconds, and whether it has B:."""

    number: int
    to_shell: bool
    name: str
    lead_s: int


def _warning(script: Script) -> _SignalDirective | None:
    found = script.directive("signal")
    match = re.fullmatch(r"([BR]*:)?(?:SIG)?(\w+)(?:@(\d+))?", found.value) if found else None
    if found is None or match is None:
        return None
    name = {"10": "USR1", "12": "USR2", "15": "TERM"}.get(match[2], match[2])
    return _SignalDirective(
        number=found.number, to_shell="B" in (match[1] or ""), name=name, lead_s=int(match[3] or 60)
    )


def foreground_step(script: Script) -> Iterator[int]:
    """Work in the foreground of a script that traps the warning."""
    warning = _warning(script)
    if warning and warning.to_shell and script.traps(warning.name):
        work = [line for line in script.main if is_work(line)]
        if work and not any(in_background(line) for line in work):
            yield work[-1].number


def untrapped(script: Script) -> Iterator[int]:
    """A signal sent to a batch shell without a trap."""
    warning = _warning(script)
    mentions = script.find(rf"\btrap\b.*\b(SIG)?{re.escape(warning.name)}\b") if warning else []
    elsewhere = sources_others(script) or script.find(r"(^|;\s*)exec\s+(?!\d*[<>])")
    if warning and warning.to_shell and not mentions and not elsewhere:
        yield warning.number


def not_for_the_shell(script: Script) -> Iterator[int]:
    """A trap in the script for a signal that is sent to steps."""
    warning = _warning(script)
    if warning and not warning.to_shell and script.traps(warning.name):
        yield warning.number


def nobody_hears(script: Script) -> Iterator[int]:
    """A signal sent to steps in a script without steps."""
    warning = _warning(script)
    work = [line for line in script.lines if is_work(line)]
    if warning and not warning.to_shell and work and not script.find(RUNNER):
        yield warning.number


def agent_dies(script: Script) -> Iterator[int]:
    """A signal that reaches a torchrun that does not ignore it."""
    warning = _warning(script)
    ignored = rf"trap\s+(--\s+)?(''|\"\"|\\\"\\\")\s.*\b(SIG)?{warning.name}\b" if warning else "$^"
    if not warning or script.find(ignored) or script.find(r"--signals[-_]to[-_]handle"):
        return
    agents = script.find(AGENT)
    forwards = any(
        line.has(rf"\b(kill|scancel)\b.*{warning.name}")
        for trap in script.traps(warning.name)
        for line in trap.handler
    )
    reaches = forwards if warning.to_shell else bool(script.find(RUNNER))
    if agents and reaches:
        yield agents[0].number


def short_warning(script: Script) -> Iterator[int]:
    """A lead of less than 60 s.

    How long is long enough depends on the model. Slurm checks every 30 s and sends USR1 at the
    first check with at most lead + 30 s left.
    """
    warning = _warning(script)
    if warning and warning.lead_s < 60:
        yield warning.number


def limit_without_warning(script: Script) -> Iterator[int]:
    """A limit of hours for a training that names no signal, requeue, resume or checkpoint."""
    limit = script.directive("time")
    hours = (parse_duration(limit.value) or 0) / 3600 if limit and "$" not in limit.value else 0
    saves = r"(?i)\b(requeue|trap)\b|resum|checkpoint|ckpt|restore|continue|save|--signal|afterany"
    trains = any(is_work(line) and line.has(r"(?i)train|fine-?tun") for line in script.lines)
    if hours < _LONG_H or not trains or script.find(saves):
        return
    if limit and not script.directive("signal", "requeue", "dependency", "array"):
        yield limit.number


def requeue_not_last(script: Script) -> Iterator[int]:
    """Commands after a requeue."""
    bodies = [script.main, *script.functions.values()]
    for body in bodies:
        for i, line in enumerate(body):
            if line.has(_REQUEUE) and not line.has(_REQUEUE + r".*(\|\||\bexit\b)"):
                after = [
                    other for other in body[i + 1 :] if not other.has(r"^(fi|done|esac|;;|\})")
                ]
                if after and not after[0].has(r"^(exit|return|else|elif)\b"):
                    yield line.number


def requeue_at_term(script: Script) -> Iterator[int]:
    """A requeue in the TERM trap."""
    for trap in script.traps("TERM"):
        if any(_requeues(script, line) for line in trap.handler):
            yield trap.number


def _requeues(script: Script, line: ScriptLine) -> bool:
    """Return whether the line requeues, or calls a function that does."""
    if line.has(_REQUEUE):
        return True
    called = (
        body for name, body in script.functions.items() if line.has(rf"\b{re.escape(name)}\b")
    )
    return any(one.has(_REQUEUE) for body in called for one in body)
