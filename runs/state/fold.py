"""The state of a run: one fold over its events, Slurm's word about its job, and its processes.

Whoever asks how a run is, how it ended or what comes next asks here: the end of an attempt,
`status`, `why`, `rerun`, `cells`, exit causes of logs and pages.
"""

import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace

from configs.schema import Run
from runs.folder import RunFolder
from runs.records import Record
from runs.state.evidence import Evidence
from runs.state.reasons import failures, find_reason, reasons
from runs.state.run_state import ENDS, Next, RunState
from runs.state.slurm_job import SlurmJob
from runs.state.symptoms import died_of_signal, find_symptom

# The state after an event, by the state before it. An event that is not named changes no state.
# `done` stands until the run is queued or started again, and a stop until then stands against a
# save that was under way.
TRANSITIONS = """
          queued  started  paused   stopped  done  failed   skipped
new       queued  started  paused   stopped  done  failed   skipped
queued    queued  started  paused   stopped  done  failed   skipped
started   queued  started  paused   stopped  done  failed   skipped
paused    queued  started  paused   stopped  done  failed   skipped
stopped   queued  started  stopped  stopped  done  failed   skipped
done      queued  started  done     done     done  done     done
failed    queued  started  paused   stopped  done  failed   skipped
skipped   queued  started  paused   stopped  done  failed   skipped
"""
# The state of a run that may have a job, by Slurm's word: its job waits, runs, is over, or is
# unknown to Slurm.
WITH_SLURM = """
          waits     runs      over      unknown
new       queued    starting  ended     lost
queued    queued    starting  ended     lost
started   requeued  running   ended     lost
paused    requeued  paused    ended     lost
failed    requeued  failed    failed    failed
"""
# What comes next, by state; `failed` depends on the reason.
NEXT: Mapping[str, Next] = {
    "new": "start", "queued": "start", "starting": "start", "requeued": "start",
    "started": "go on", "running": "go on",
    "paused": "requeue", "stopped": "resume", "ended": "resume", "lost": "resume",
    "done": "nothing", "skipped": "change",
}  # fmt: skip


def _table(text: str) -> dict[str, dict[str, str]]:
    head, *rows = (line.split() for line in text.strip().splitlines())
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}


_TRANSITIONS, _WITH_SLURM = _table(TRANSITIONS), _table(WITH_SLURM)
# The events that define the state of a run.
STATES = tuple(_TRANSITIONS["new"])


def fold(
    events: Iterable[Record], slurm: SlurmJob | None = None, process: Evidence | None = None
) -> RunState:
    """Return the state of a run.

    `events` are its records in the order of writing; steps and evaluations count as such. `slurm`
    is its job, without a state if Slurm does not know it; None if Slurm was not asked. `process`
    are the traces of an attempt whose processes have left: with them an end is found if the record
    has none, and the reason and its evidence belong to the root cause.
    """
    state = _replay(events)
    if process is not None:
        return _with_process(replace(state, slurm=slurm), process)
    return state if slurm is None else with_slurm(state, slurm)


def with_slurm(state: RunState, slurm: SlurmJob) -> RunState:
    """Return the state by the record and by Slurm's word about the job."""
    if not state.may_have_job:
        return replace(state, slurm=slurm)
    name = _WITH_SLURM[state.recorded][_phase(slurm)]
    if name == state.recorded:
        return replace(state, slurm=slurm)
    # A job that holds its nodes may also be configuring, suspended or completing.
    word = slurm.state.lower() if name == "running" else name
    return replace(state, name=word, slurm=slurm, next=NEXT[name])


def run_state(run: RunFolder) -> RunState:
    """Return the state of a run by its record alone."""
    return fold(run.records())


def is_done(run: RunFolder, config: Run) -> bool:
    """Return whether the run ended with `done` at or beyond the last step of `config`."""
    state = run_state(run)
    return state.is_done and int(state.last.get("step", 0)) >= config.last_step()


def _phase(slurm: SlurmJob) -> str:
    if not slurm.state:
        return "unknown"
    if slurm.is_waiting or slurm.state == "REQUEUED":
        return "waits"
    return "over" if slurm.has_ended else "runs"


def _replay(events: Iterable[Record]) -> RunState:
    """Return the state by the record alone."""
    name, last = "new", Record()
    step: int | None = None
    began: dict[int, int] = {}
    added: dict[int, int] = {}
    for record in events:
        if isinstance(record.get("step"), int):
            step = record["step"]
        event, attempt = record.get("event"), record.get("attempt", 0)
        if event == "started":
            began[attempt] = record.get("step", 0)
        elif event == "saved":
            # The steps of a program that is not ours are unknown: one save counts as one.
            added[attempt] = record.get("step", 1) - began.get(attempt, 0)
        # A rank of an older attempt may outlive it: its words count no more.
        is_late = name != "queued" and attempt < last.get("attempt", 0)
        if event not in STATES or is_late:
            continue
        after = _TRANSITIONS[name][event]
        if after == event:
            last = record
        name = after
    state = RunState(
        name=name,
        recorded=name,
        reason=last.get("reason"),
        since=last.get("time"),
        step=step,
        last=last,
        progress=added,
    )
    return replace(state, next=_next(state))


def _next(state: RunState) -> Next:
    if not state.is_failed:
        return NEXT[state.name]
    reason = reasons().get(state.reason or "crash", reasons()["crash"])
    if not reason.passes:
        return "change"
    is_worthwhile = reason.at_once or state.progress.get(state.attempt, 0) > 0
    return "requeue" if is_worthwhile else "resume"


def _with_process(state: RunState, process: Evidence) -> RunState:
    """Return the state after the processes of an attempt left, with the root cause of its end."""
    # An attempt that has begun may also have the event that queued it.
    has_end = state.recorded in (*ENDS, "paused") or (state.is_queued and not process.attempt)
    evidence = replace(process, end=state.last if has_end else Record(), slurm=state.slurm)
    # If one agent dies, srun ends the ranks of the others with the same signal as scancel does.
    by_srun = state.is_stopped and process.status and not evidence.was_told_to_stop
    if process.status is not None and state.is_paused and process.is_not_to_go_on:
        last = Record(event="stopped", attempt=process.attempt)
        return replace(state, name="stopped", recorded="stopped", last=last, next=NEXT["stopped"])
    if process.status is not None and (by_srun or not has_end):
        return _unrecorded_end(state, replace(evidence, end=Record()))
    goes_on = not has_end and state.slurm is not None and not state.slurm.is_over
    found = None if goes_on else find_symptom(evidence)
    if found is None:
        lines = (*evidence.recorded(), *evidence.by_slurm())
        return replace(state, reason=None, evidence=lines)
    return replace(state, reason=found[0], evidence=tuple(found[1]))


def _unrecorded_end(state: RunState, evidence: Evidence) -> RunState:
    """Return the end of an attempt whose ranks recorded none."""
    noted = evidence.note.get("reason")
    if noted in failures() and noted != "nccl":
        reason, lines = noted, evidence.noted()
    else:
        # A rank that is killed leaves no note; its peers may note that they lost it.
        reason, lines = find_symptom(evidence) or ("crash", [])
    if reason == "cancelled":
        name = "stopped"
    else:
        name, reason = "failed", reason if reason in failures() else "crash"
    last = {"event": name, "attempt": evidence.attempt}
    ended = replace(
        state, name=name, recorded=name, reason=reason, evidence=tuple(lines), last=last
    )
    return replace(ended, next=_next(ended))


def reason_of_exit(status: int, output: str, *, among: Iterable[str] | None = None) -> str:
    """Return the reason of a failure by an exit status and the end of the output."""
    if found := find_reason(output, among=among):
        return found
    return "crash" if died_of_signal(status) in (None, signal.SIGABRT) else "killed"
