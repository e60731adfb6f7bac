"""Recognise each cause by its evidence: the record, the error note, the logs and Slurm.

Each function returns the lines that show its cause; none means that the cause does not apply.
"""

import re
from collections.abc import Callable
from pathlib import Path

from launch.why import slurm_history
from launch.why.evidence import RUN_BEGAN, Evidence
from runs.failures import failures

Symptom = Callable[[Evidence], list[str]]

PORT = r"EADDRINUSE|[Aa]ddress already in use"
# torchrun itself ends the other ranks with TERM (15), and a process aborts itself with ABRT (6).
KILLED = r"Signal (?!15\b|6\b)\d+ \(SIG\w+\) received by PID"
KILLED_BRIEFLY = r"exitcode\s*: -(?!15\b|6\b)\d+|\(exitcode: -(?!15\b|6\b)\d+\)"
# The exit code of a job's script: killed itself, or the code with which a shell reports it.
_KILLED_JOB = re.compile(r"0:(?!53$)[1-9]\d*|1(29|3\d|4\d):0")
# The lead of --signal, one of Slurm's checks every 30 s, and a minute for the save.
_NEAR_LIMIT_S = 180 + 30 + 60


def _failed(evidence: Evidence) -> bool:
    """Return whether the attempt failed; only then its logs are searched for errors."""
    return evidence.event in ("failed", "")


def recorded_reason(reason: str) -> Symptom:
    """Return the symptom of an end that was recorded with a reason."""

    def find(evidence: Evidence) -> list[str]:
        if reason == "config" and evidence.run is None:
            return _misuse(evidence)
        return evidence.recorded() if _failed(evidence) and evidence.reason == reason else []

    return find


def _misuse(evidence: Evidence) -> list[str]:
    """Recognise exit code 2, which our commands use for an error that the user has to fix."""
    if evidence.start is None or evidence.start.exit_code != "2:0" or not evidence.is_ours:
        return []
    return [*evidence.last_lines(), *evidence.by_slurm()]


def reason_or_output(reason: str, pattern: str = "") -> Symptom:
    """Return the symptom of an end with a reason, or with a line of output that matches it."""

    def find(evidence: Evidence) -> list[str]:
        if not _failed(evidence):
            return []
        quotes = evidence.quotes(pattern or failures()[reason].output)
        return evidence.recorded() + quotes if evidence.reason == reason else quotes

    return find


def host_oom(evidence: Evidence) -> list[str]:
    """Recognise the kernel's, Slurm's or Python's message."""
    killed = evidence.by_slurm() if evidence.state == "OUT_OF_MEMORY" else []
    return killed + reason_or_output("host_oom", failures()["host_oom"].pattern)(evidence)


def recorded_event(event: str) -> Symptom:
    """Return the symptom of an attempt that recorded an event as its last."""
    return lambda evidence: evidence.recorded() if evidence.event == event else []


def folder_gone(evidence: Evidence) -> list[str]:
    """Recognise a job whose output names the folder of a run that is no more."""
    found = [] if evidence.run else [q for log in evidence.logs for q in log.find(RUN_BEGAN)]
    gone = [str(q) for q in found if not Path(q.text[len("run ") :].rpartition(", ")[0]).exists()]
    return [*gone, *evidence.by_slurm()] if gone else []


def completed(*, with_exception: bool) -> Symptom:
    """Return the symptom of a job without a run that exited with 0, and printed an exception."""

    def find(evidence: Evidence) -> list[str]:
        raised = [evidence.exception] if evidence.exception else []
        if evidence.run or evidence.state != "COMPLETED" or bool(raised) != with_exception:
            return []
        return [*raised, *evidence.last_lines(), *evidence.by_slurm()]

    return find


def killed(evidence: Evidence) -> list[str]:
    """Recognise a rank, or a job's script, that a signal ended which torchrun did not send."""
    if evidence.run is None and evidence.start and _KILLED_JOB.fullmatch(evidence.start.exit_code):
        return [*evidence.by_slurm(), *evidence.last_lines()]
    # The watchdog kills the ranks after a hang.
    if not _failed(evidence) or evidence.reason == "hang":
        return []
    return evidence.quotes(KILLED) or evidence.quotes(KILLED_BRIEFLY)


def no_progress(evidence: Evidence) -> list[str]:
    """Recognise the recorded end of attempts without progress."""
    stalled = evidence.reason == "timeout" and "saved nothing new" in evidence.message
    return evidence.recorded() if stalled else []


def hang(evidence: Evidence) -> list[str]:
    """Recognise a report of our watchdog, or a timeout of NCCL or gloo."""
    if not _failed(evidence):
        return []
    recorded = evidence.recorded() if evidence.reason == "hang" else []
    return recorded + evidence.quotes(failures()["hang"].output)


def silent_success(evidence: Evidence) -> list[str]:
    """Recognise ranks that exited with 0 without recording that they are done."""
    is_silent = evidence.event == "failed" and "status 0 and" in evidence.message
    return evidence.recorded() if is_silent else []


def crash(evidence: Evidence) -> list[str]:
    """Recognise any other exception or exit code."""
    raised = [evidence.exception] if evidence.exception else []
    if evidence.event == "failed":
        said_nothing = raised and evidence.message.endswith("and no message")
        recorded = [] if said_nothing else evidence.recorded()
        return raised + recorded + evidence.quotes(r"\(SIGABRT\)")[:1]
    wrong = evidence.state in ("FAILED", "BOOT_FAIL", "DEADLINE")
    shown = raised + evidence.last_lines()[:1] + evidence.by_slurm()
    return shown if wrong and evidence.event in ("", "queued") else []


def launch_failure(evidence: Evidence) -> list[str]:
    """Recognise a job that Slurm could not start: exit code 0:53 and no output."""
    start = evidence.start
    failed = start is not None and (
        start.reason == "JobLaunchFailure" or (start.exit_code == "0:53" and not evidence.logs)
    )
    return evidence.by_slurm() if failed and evidence.event in ("", "queued") else []


def node_failure(evidence: Evidence) -> list[str]:
    """Recognise Slurm's message or state."""
    quotes = evidence.quotes(failures()["node"].slurm)
    return quotes + evidence.by_slurm() if quotes or evidence.state == "NODE_FAIL" else []


def time_limit(evidence: Evidence) -> list[str]:
    """Recognise Slurm's message or state, or a pause so close to the limit that it was warned."""
    quotes = evidence.quotes(failures()["timeout"].slurm)
    if quotes or evidence.state in ("TIMEOUT", "DEADLINE"):
        return quotes + evidence.by_slurm() + _last_event(evidence)
    left_s = _left_s(evidence)
    if evidence.event != "paused" or left_s is None or left_s > _NEAR_LIMIT_S:
        return []
    assert evidence.start is not None
    start = evidence.start
    return [
        f"{start.source}: that was {left_s:.0f} s before the limit of {start.limit_s} s",
        *_last_event(evidence),
    ]


def _left_s(evidence: Evidence) -> float | None:
    """Return the seconds from the end of the attempt to the job's limit, if known."""
    start = evidence.start
    if start is None or start.limit_s is None or start.started is None:
        return None
    ended = evidence.end.get("time") or start.ended
    return start.started + start.limit_s - float(ended) if ended else None


def preemption(evidence: Evidence) -> list[str]:
    """Recognise Slurm's message or state, or a pause far from the limit in such a partition."""
    quotes = evidence.quotes(failures()["preempted"].slurm)
    if quotes or evidence.state == "PREEMPTED":
        return quotes + evidence.by_slurm()
    start = evidence.start
    if evidence.event == "paused" and start and slurm_history.is_preemptable(start.partition):
        left_s = _left_s(evidence)
        left = "unknown" if left_s is None else f"{left_s / 60:.0f} minutes"
        shown = f"partition {start.partition} is preemptable; time left to the limit: {left}"
        return [f"{start.source}: {shown}", *_last_event(evidence)]
    return []


def requeue(evidence: Evidence) -> list[str]:
    """Recognise `scontrol requeue` by a user or by Slurm, without a warning to the ranks."""
    if evidence.event not in ("", "stopped"):
        return []
    quotes = evidence.quotes(r"DUE TO JOB REQUEUE")
    requeued = evidence.state == "REQUEUED" and evidence.event == ""
    return quotes + evidence.by_slurm() if quotes or requeued else []


def scancel(evidence: Evidence) -> list[str]:
    """Recognise Slurm's message or state, or the launcher's own record of it."""
    quotes = evidence.quotes(r"JOB \S+ ON \S+ CANCELLED AT \S+ \*\*\*")
    unrecorded = evidence.event in ("", "stopped") and bool(quotes)
    if evidence.state == "CANCELLED" or unrecorded or evidence.is_cancelled:
        return quotes + evidence.by_slurm() + _last_event(evidence)
    return []


def stop_file(evidence: Evidence) -> list[str]:
    """Recognise a run that stopped because of its file STOP or Ctrl-C."""
    if evidence.event != "stopped":
        return []
    stop = evidence.run.stop_file if evidence.run else None
    by_file = [f"{stop}: exists"] if stop and stop.exists() else []
    return by_file + _last_event(evidence)


def end_of_turn(evidence: Evidence) -> list[str]:
    """Recognise a pause at the step at which the attempt's turn in an interleaved study ends."""
    entries = evidence.run.entries() if evidence.run and evidence.event == "paused" else []
    turns = [one.get("turn", "") for one in entries if one["attempt"] == evidence.attempt]
    ends = [turn.rpartition(":")[2] for turn in turns]
    return _last_event(evidence) if ends == [str(evidence.end.get("step"))] else []


def pause(evidence: Evidence) -> list[str]:
    """Recognise a run that saved and left at a signal of unknown origin."""
    return _last_event(evidence) if evidence.event == "paused" else []


def _last_event(evidence: Evidence) -> list[str]:
    return [str(evidence.end_quote)] if evidence.end_quote else []
