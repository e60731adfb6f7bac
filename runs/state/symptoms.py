"""Recognise each reason by its evidence: the record, the error note, the logs and Slurm.

Each function returns the lines that show its reason; none means that the reason does not apply.
"""

import re
import signal
from collections.abc import Callable

from runs.state.evidence import Evidence
from runs.state.reasons import reasons

Symptom = Callable[[Evidence], list[str]]

_PORT = r"EADDRINUSE|[Aa]ddress already in use"
_KILLED_BRIEFLY = r"exitcode\s*: -(?!15\b|6\b)\d+|\(exitcode: -(?!15\b|6\b)\d+\)"
# The lead of --signal, one of Slurm's checks every 30 s, and a minute for the save.
_NEAR_LIMIT_S = 180 + 30 + 60
# Messages of records that say so.
_KILLED_MESSAGE = re.compile(r"signal SIG(?!ABRT)|the ranks left with status 1(37|39|43) ")
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
    found = ((name, SYMPTOMS[name](evidence)) for name in reasons())
    return next(((name, lines) for name, lines in found if lines), None)


def _failed(evidence: Evidence) -> bool:
    """Return whether the attempt failed; only then its logs are searched for errors."""
    return evidence.event in ("failed", "")


def _recorded_event(event: str) -> Symptom:
    """Return the symptom of an attempt that recorded an event as its last."""
    return lambda evidence: evidence.recorded() if evidence.event == event else []


def _recorded_reason(reason: str) -> Symptom:
    """Return the symptom of an end that was recorded with a reason."""

    def find(evidence: Evidence) -> list[str]:
        return evidence.recorded() if _failed(evidence) and evidence.reason == reason else []

    return find


def _reason_or_output(reason: str, pattern: str) -> Symptom:
    """Return the symptom of an end with a reason, or with a line of output that matches it."""

    def find(evidence: Evidence) -> list[str]:
        if not _failed(evidence):
            return []
        return _recorded_reason(reason)(evidence) + evidence.quotes(pattern)

    return find


def _shown_by_output(reason: str) -> Symptom:
    return lambda evidence: _reason_or_output(reason, reasons()[reason].output)(evidence)


def _host_oom(evidence: Evidence) -> list[str]:
    """Recognise the kernel's, Slurm's or Python's message."""
    killed = evidence.by_slurm() if evidence.state == "OUT_OF_MEMORY" else []
    return killed + _reason_or_output("host_oom", reasons()["host_oom"].pattern)(evidence)


def _killed(evidence: Evidence) -> list[str]:
    """Recognise a process that a signal ended which neither torchrun nor a person sent."""
    # The watchdog kills the ranks after a hang.
    if not _failed(evidence) or evidence.reason == "hang":
        return []
    is_silent = _KILLED_MESSAGE.match(evidence.message) is not None
    recorded = evidence.recorded() if evidence.reason == "killed" or is_silent else []
    quotes = evidence.quotes(reasons()["killed"].output) or evidence.quotes(_KILLED_BRIEFLY)
    if recorded or quotes:
        return recorded + quotes
    has_message = evidence.note or evidence.end
    number = None if has_message else died_of_signal(evidence.status)
    return [f"signal {number}"] if number not in (None, signal.SIGABRT) else []


def _stalled(evidence: Evidence) -> list[str]:
    """Recognise the recorded end of attempts without progress."""
    stalled = evidence.reason == "timeout" and "saved nothing new" in evidence.message
    return evidence.recorded() if stalled else []


def _silent_success(evidence: Evidence) -> list[str]:
    """Recognise ranks that exited with 0 without recording that they are done."""
    is_silent = evidence.event == "failed" and "status 0 and" in evidence.message
    return evidence.recorded() if is_silent else []


def _crash(evidence: Evidence) -> list[str]:
    """Recognise any other exception or exit code."""
    raised = [evidence.exception] if evidence.exception else []
    if evidence.event == "failed":
        said_nothing = raised and evidence.message.endswith("and no message")
        recorded = [] if said_nothing else evidence.recorded()
        return raised + recorded + evidence.quotes(r"\(SIGABRT\)")[:1]
    wrong = evidence.state in ("FAILED", "BOOT_FAIL", "DEADLINE")
    shown = raised + evidence.last_lines()[:1] + evidence.by_slurm()
    return shown if wrong and evidence.event in ("", "queued") else []


def _launch_failure(evidence: Evidence) -> list[str]:
    """Recognise a job that Slurm could not start: exit code 0:53 and no output."""
    slurm = evidence.slurm
    failed = slurm is not None and (
        slurm.reason == "JobLaunchFailure" or (slurm.exit_code == "0:53" and not evidence.logs)
    )
    return evidence.by_slurm() if failed and evidence.event in ("", "queued") else []


def _lost_node(evidence: Evidence) -> list[str]:
    """Recognise Slurm's message or state."""
    quotes = evidence.quotes(reasons()["node"].slurm)
    return quotes + evidence.by_slurm() if quotes or evidence.state == "NODE_FAIL" else []


def _timeout(evidence: Evidence) -> list[str]:
    """Recognise Slurm's message or state, or a pause so close to the limit that it was warned."""
    quotes = evidence.quotes(reasons()["timeout"].slurm)
    if quotes or evidence.state in ("TIMEOUT", "DEADLINE"):
        return quotes + evidence.by_slurm() + evidence.last_event()
    if not _stalled(evidence) and (recorded := _recorded_reason("timeout")(evidence)):
        return recorded
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
    """Recognise Slurm's message or state, or a pause far from the limit in such a partition."""
    quotes = evidence.quotes(reasons()["preempted"].slurm)
    if quotes or evidence.state == "PREEMPTED":
        return quotes + evidence.by_slurm()
    slurm = evidence.slurm
    if evidence.event == "paused" and slurm and evidence.is_preemptable(slurm.partition):
        left_s = _left_s(evidence)
        left = "unknown" if left_s is None else f"{left_s / 60:.0f} minutes"
        shown = f"partition {slurm.partition} is preemptable; time left to the limit: {left}"
        return [f"{slurm.source}: {shown}", *evidence.last_event()]
    return []


def _requeued(evidence: Evidence) -> list[str]:
    """Recognise `scontrol requeue` by a user or by Slurm, without a warning to the ranks."""
    if evidence.event not in ("", "stopped"):
        return []
    quotes = evidence.quotes(reasons()["requeued"].slurm)
    requeued = evidence.state == "REQUEUED" and evidence.event == ""
    return quotes + evidence.by_slurm() if quotes or requeued else []


def _cancelled(evidence: Evidence) -> list[str]:
    """Recognise Slurm's message or state, or the launcher's own record of it."""
    quotes = evidence.quotes(reasons()["cancelled"].slurm)
    has_no_end = evidence.event in ("", "stopped")
    is_ours = has_no_end and evidence.is_marked_cancelled
    if evidence.state == "CANCELLED" or is_ours or (has_no_end and quotes):
        return quotes + evidence.by_slurm() + evidence.last_event()
    return []


def _stop_file(evidence: Evidence) -> list[str]:
    """Recognise a run that stopped because of its file STOP or Ctrl-C."""
    if evidence.event != "stopped":
        return []
    stop = evidence.run.stop_file
    by_file = [f"{stop}: exists"] if stop.exists() else []
    return by_file + evidence.last_event()


def _turn(evidence: Evidence) -> list[str]:
    """Recognise a pause at the step at which the attempt's turn in an interleaved study ends."""
    entries = evidence.run.entries() if evidence.event == "paused" else []
    turns = [one.get("turn", "") for one in entries if one["attempt"] == evidence.attempt]
    ends = [turn.rpartition(":")[2] for turn in turns]
    return evidence.last_event() if ends == [str(evidence.end.get("step"))] else []


def _pause(evidence: Evidence) -> list[str]:
    """Recognise a run that saved and left at a signal of unknown origin."""
    return evidence.last_event() if evidence.event == "paused" else []


SYMPTOMS: dict[str, Symptom] = {
    "done": _recorded_event("done"),
    "skipped": _recorded_event("skipped"),
    "launch_failure": _launch_failure,
    "config": _recorded_reason("config"),
    "oom": _shown_by_output("oom"),
    "host_oom": _host_oom,
    "disk": _shown_by_output("disk"),
    "node": _shown_by_output("node"),
    "nan": _recorded_reason("nan"),
    "gradients": _recorded_reason("gradients"),
    "data": _shown_by_output("data"),
    "port": _reason_or_output("port", _PORT),
    "lost_node": _lost_node,
    "turn": _turn,
    "timeout": _timeout,
    "preempted": _preempted,
    "requeued": _requeued,
    "cancelled": _cancelled,
    "stop_file": _stop_file,
    "pause": _pause,
    "killed": _killed,
    "stalled": _stalled,
    "hang": _shown_by_output("hang"),
    "nccl": _shown_by_output("nccl"),
    "silent_success": _silent_success,
    "crash": _crash,
}
