"""Recognise each reason by its evidence: the record, the error note, the logs and Slurm.

Most are found as reasons.yaml says. The functions here return the lines that show one of the
others; none means that the reason does not apply.
"""

import re
import signal
from collections.abc import Callable, Mapping

from runs.state.evidence import Evidence
from runs.state.log_lines import last_exception
from runs.state.reasons import Reason, reasons

Symptom = Callable[[Evidence], list[str]]

_KILLED_BRIEFLY = r"exitcode\s*: -(?!15\b|6\b)\d+"
# The lead of --signal, one of Slurm's checks every 30 s, and a minute for the save.
_NEAR_LIMIT_S = 180 + 30 + 60
# A shell reports the signal n that ended its child by the status 128 + n.
_LEAST_OF_SIGNAL, _MOST_OF_SIGNAL = 129, 192


def died_of_signal(status: int | None) -> int | None:
    """Return the signal that ended a process, by its status or a shell's report of it, or None."""
    if status is None:
        return None
    if status < 0:
        return -status
    return status - 128 if _LEAST_OF_SIGNAL <= status <= _MOST_OF_SIGNAL else None


def find_symptom(evidence: Evidence) -> tuple[str, list[str]] | None:
    """Return the first reason that shows, and the lines that show it; None if none does."""
    for name, reason in reasons().items():
        own = _OWN.get(name)
        lines = own(evidence) if own else _by_table(evidence, reason)
        if lines or (lines := _FURTHER.get(name, lambda _: [])(evidence)):
            return name, lines
    return None


def _by_table(evidence: Evidence, reason: Reason) -> list[str]:
    """Return the lines that reasons.yaml says show a reason."""
    shown: list[str] = []
    if not reason.ends or (evidence.event or "none") in reason.ends:
        quotes = evidence.quotes(reason.slurm)
        if quotes or re.search(reason.job, evidence.ended_job):
            shown = quotes + evidence.by_slurm() + evidence.last_event()
    if reason.event and evidence.event == reason.event:
        return shown + evidence.recorded()
    # Only of an attempt that failed are the logs searched for errors.
    if evidence.event in ("failed", ""):
        is_recorded = evidence.reason == reason.name or re.match(reason.message, evidence.message)
        shown += evidence.recorded() if is_recorded else []
        shown += evidence.quotes(reason.output)
    return shown


def _turn(evidence: Evidence) -> list[str]:
    """Recognise a pause at the step at which the attempt's turn in an interleaved study ends."""
    entries = evidence.run.entries() if evidence.event == "paused" else []
    turns = [one.get("turn", "") for one in entries if one["attempt"] == evidence.attempt]
    ends = [turn.rpartition(":")[2] for turn in turns]
    return evidence.last_event() if ends == [str(evidence.end.get("step"))] else []


def _near_limit(evidence: Evidence) -> list[str]:
    """Recognise a pause so close to the limit that Slurm must have warned of it."""
    left_s = _left_s(evidence)
    if evidence.event != "paused" or left_s is None or left_s > _NEAR_LIMIT_S:
        return []
    assert evidence.slurm is not None
    slurm = evidence.slurm
    return [
        f"{slurm.source}: that was {left_s:.0f} s before the limit of {slurm.limit_s} s",
        *evidence.last_event(),
    ]


def _left_s(evidence: Evidence) -> float | None:
    """Return the seconds from the end of the attempt to the job's limit, if known."""
    slurm = evidence.slurm
    if slurm is None or slurm.limit_s is None or slurm.started is None:
        return None
    ended = evidence.end.get("time") or slurm.ended
    return slurm.started + slurm.limit_s - float(ended) if ended else None


def _preempted(evidence: Evidence) -> list[str]:
    """Recognise a pause far from the limit in a partition whose jobs are preempted."""
    slurm = evidence.slurm
    if evidence.event == "paused" and slurm and evidence.is_preemptable(slurm.partition):
        left_s = _left_s(evidence)
        left = "unknown" if left_s is None else f"{left_s / 60:.0f} minutes"
        where = f"partition {slurm.partition} is preemptable; time left to the limit: {left}"
        return [f"{slurm.source}: {where}", *evidence.last_event()]
    return []


def _cancelled(evidence: Evidence) -> list[str]:
    """Recognise the mark of `ditbench cancel`."""
    is_ours = evidence.event in ("", "stopped") and evidence.is_marked_cancelled
    return evidence.by_slurm() + evidence.last_event() if is_ours else []


def _killed(evidence: Evidence) -> list[str]:
    """Recognise a process that a signal ended which neither torchrun nor a person sent."""
    # The watchdog kills the ranks after a hang.
    if evidence.event not in ("failed", "") or evidence.reason == "hang":
        return []
    if shown := _by_table(evidence, reasons()["killed"]) or evidence.quotes(_KILLED_BRIEFLY):
        return shown
    has_message = evidence.note or evidence.end
    number = None if has_message else died_of_signal(evidence.status)
    return [f"signal {number}"] if number not in (None, signal.SIGABRT) else []


def _crash(evidence: Evidence) -> list[str]:
    """Recognise any other exception or exit code."""
    noted = str(evidence.note.get("traceback", "")).splitlines()
    texts = [noted, *(log.lines for log in evidence.logs)]
    raised = [*filter(None, map(last_exception, texts))][:1]
    if evidence.event == "failed":
        said_nothing = raised and evidence.message.endswith("and no message")
        recorded = [] if said_nothing else evidence.recorded()
        return raised + recorded + evidence.quotes(r"\(SIGABRT\)")[:1]
    wrong = re.search("FAILED|BOOT_FAIL", evidence.ended_job)
    last = [line for log in evidence.logs for line in log.last()]
    shown = raised + last[:1] + evidence.by_slurm()
    return shown if wrong and evidence.event in ("", "queued") else []


# Reasons that reasons.yaml cannot tell, and those that it tells only in part.
_OWN: Mapping[str, Symptom] = {
    "turn": _turn,
    "killed": _killed,
    "crash": _crash,
}
_FURTHER: Mapping[str, Symptom] = {
    "timeout": _near_limit,
    "preempted": _preempted,
    "cancelled": _cancelled,
}
