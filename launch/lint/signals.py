"""Rules about signals before the end of a job, and about requeueing it."""

import re
from collections.abc import Iterator

from launch.lint.commands import AGENT, RUNNER, in_background, is_work, sources_others
from launch.lint.lint import rule
from launch.lint.script import Script, ScriptLine

_REQUEUE = r"\bscontrol\s+requeue\b"


def _asked(script: Script) -> tuple[int, bool, str, int] | None:
    """Line, whether the batch shell alone is meant, name and lead in seconds of --signal."""
    found = script.asks("signal")
    match = re.fullmatch(r"([BR]*:)?(?:SIG)?(\w+)(?:@(\d+))?", found.value) if found else None
    if found is None or match is None:
        return None
    name = {"10": "USR1", "12": "USR2", "15": "TERM"}.get(match[2], match[2])
    return found.number, "B" in (match[1] or ""), name, int(match[3] or 60)


@rule(
    "the batch shell hears a signal only between its commands: this one is in the foreground, so "
    "the trap of --signal=B: runs after the step is dead",
    mend='srun ... & pid=$!, then wait "$pid" in a loop',
)
def foreground_step(script: Script) -> Iterator[int]:
    """Work in the foreground of a script that is to hear a signal."""
    asked = _asked(script)
    if asked and asked[1] and script.traps(asked[2]):
        work = [line for line in script.main if is_work(line)]
        if work and not any(in_background(line) for line in work):
            yield work[-1].number


@rule(
    "--signal=B: goes to the batch shell, which has no trap for it and dies of it",
    mend="trap 'kill -USR1 \"$pid\"' USR1, set before srun ... & pid=$!",
)
def untrapped(script: Script) -> Iterator[int]:
    """A signal for a batch shell without a trap."""
    asked = _asked(script)
    mentions = script.find(rf"\btrap\b.*\b(SIG)?{re.escape(asked[2])}\b") if asked else []
    elsewhere = sources_others(script) or script.find(r"(^|;\s*)exec\s+(?!\d*[<>])")
    if asked and asked[1] and not mentions and not elsewhere:
        yield asked[0]


@rule(
    "--signal without B: reaches the steps of srun alone: the trap of this script never runs",
    mend="#SBATCH --signal=B:USR1@180, and let the trap hand it on",
)
def not_for_the_shell(script: Script) -> Iterator[int]:
    """A trap for a signal that is sent to steps."""
    asked = _asked(script)
    if asked and not asked[1] and script.traps(asked[2]):
        yield asked[0]


@rule(
    "--signal without B: reaches steps of srun alone, and this script has none: nobody hears it",
    mend="#SBATCH --signal=B:USR1@180 and a trap, or start the work by srun",
)
def nobody_hears(script: Script) -> Iterator[int]:
    """A signal for steps in a script without steps."""
    asked = _asked(script)
    work = [line for line in script.lines if is_work(line)]
    if asked and not asked[1] and work and not script.find(RUNNER):
        yield asked[0]


@rule(
    "torchrun's agent dies of this signal and takes its ranks, and their checkpoint, with it",
    mend="srun bash -c 'trap \"\" USR1 TERM; exec torchrun ...': what is ignored stays ignored in "
    "the agent, while the ranks listen for themselves",
)
def agent_dies(script: Script) -> Iterator[int]:
    """A signal on its way to a torchrun that does not ignore it."""
    asked = _asked(script)
    ignored = rf"trap\s+(--\s+)?(''|\"\"|\\\"\\\")\s.*\b(SIG)?{asked[2]}\b" if asked else "$^"
    if not asked or script.find(ignored) or script.find(r"--signals[-_]to[-_]handle"):
        return
    agents = script.find(AGENT)
    forwards = any(
        line.has(rf"\b(kill|scancel)\b.*{asked[2]}")
        for trap in script.traps(asked[2])
        for line in trap.does
    )
    reaches = forwards if asked[1] else bool(script.find(RUNNER))
    if agents and reaches:
        yield agents[0].number


@rule(
    "less than a minute of warning: a step and a save may take longer",
    mend="--signal=B:USR1@180: a minute, the slowest step and a save",
    level="remark",
)
def short_warning(script: Script) -> Iterator[int]:
    """A lead of less than 60 s.

    Not reproduced: whether it is too short is the model's affair. Measured: USR1 comes at the first
    tick of 30 s with no more than the lead + 30 s left.
    """
    asked = _asked(script)
    if asked and asked[3] < 60:
        yield asked[0]


@rule(
    "scontrol requeue kills this script at once: what follows does not run",
    mend="make it the last command; do what must be done before it",
)
def requeue_not_last(script: Script) -> Iterator[int]:
    """Commands that would follow a requeue."""
    bodies = [script.main, *script.functions.values()]
    for body in bodies:
        for i, line in enumerate(body):
            if line.has(_REQUEUE) and not line.has(_REQUEUE + r".*(\|\||\bexit\b)"):
                after = [
                    other for other in body[i + 1 :] if not other.has(r"^(fi|done|esac|;;|\})")
                ]
                if after and not after[0].has(r"^(exit|return|else|elif)\b"):
                    yield line.number


@rule(
    "TERM may be a person's scancel: this brings the cancelled job back",
    mend="requeue at USR1 only (--signal=B:USR1@180); at TERM save and leave",
)
def requeue_at_term(script: Script) -> Iterator[int]:
    """A requeue in the trap of TERM."""
    for trap in script.traps("TERM"):
        if any(_requeues(script, line) for line in trap.does):
            yield trap.number


def _requeues(script: Script, line: ScriptLine) -> bool:
    """Whether the line requeues, or calls a function that does."""
    if line.has(_REQUEUE):
        return True
    called = (
        body for name, body in script.functions.items() if line.has(rf"\b{re.escape(name)}\b")
    )
    return any(one.has(_REQUEUE) for body in called for one in body)


RULES = (
    foreground_step, untrapped, not_for_the_shell, nobody_hears, agent_dies, short_warning,
    requeue_not_last, requeue_at_term,
)  # fmt: skip
