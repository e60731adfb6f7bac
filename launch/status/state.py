"""The state of runs: the last event of the record and, until a run has ended, its Slurm job."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.load import flatten
from configs.progress import counted
from configs.table import Row
from launch.slurm import client
from launch.slurm.client import Refused
from runs.folder import RunFolder, find_runs
from runs.jobs import awaited_job, started_job
from runs.records import Record
from runs.state.fold import fold, with_slurm
from runs.state.run_state import RunState
from runs.state.slurm_job import SlurmJob

# The groups of states, in the order of a table; any other word is Slurm's for a job that holds its
# nodes.
GROUPS = {
    "started": "live", "running": "live", "starting": "live",
    "queued": "waiting", "requeued": "waiting",
    "failed": "broken", "lost": "broken", "ended": "broken",
    "new": "idle", "paused": "idle", "stopped": "idle",
    "done": "over", "skipped": "over",
}  # fmt: skip
# The state of a run with a damaged file.
UNREADABLE = "unreadable"
# The step rate is measured over this many of the newest records.
RECENT_RECORDS = 32


def step_rate(records: Sequence[Record]) -> float | None:
    """Return the steps per second of wall time over the newest records of the newest attempt.

    Saves and samples are included. Before there are two records it is None.
    """
    newest = [
        one
        for one in records
        if one["attempt"] == records[-1]["attempt"] and "event" not in one and "step" in one
    ][-RECENT_RECORDS:]
    if len(newest) < 2:
        return None
    first, last = newest[0], newest[-1]
    steps, seconds = last["step"] - first["step"], last["time"] - first["time"]
    return steps / seconds if seconds > 0 and steps > 0 else None


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run according to its folder.

    `config` has dotted keys; it is empty if it cannot be read. `job` is the one that started the
    run last, or that may still start it. `problem` says why the folder cannot be read.
    """

    run: RunFolder
    state: RunState
    config: dict[str, Any]
    job: str | None
    steps_per_s: float | None = None
    problem: str = ""

    @property
    def steps(self) -> int | None:
        """The step at which the run ends."""
        steps = self.config.get("train.steps")
        return steps if isinstance(steps, int) else None

    @property
    def word(self) -> str:
        """The state for people."""
        return UNREADABLE if self.problem else self.state.word

    @property
    def group(self) -> str:
        """The group of the state."""
        return "broken" if self.problem else GROUPS.get(self.state.name, "live")

    @property
    def may_go_on(self) -> bool:
        """Whether the run has a job that has not ended, as far as known."""
        is_ahead = self.state.is_open or self.state.is_requeued
        return not self.problem and is_ahead and self.state.next != "resume"


def overview(paths: Sequence[Path]) -> list[RunStatus]:
    """Return the state of all runs under `paths`; query Slurm once for all of them.

    Without an answer the records give the states of the unfinished ones.
    """
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder; name a run, or a folder of runs")
    found = [run for path in paths for run in find_runs(path)]
    runs = [_readable_status(run) for run in counted(found, "reading the state of runs")]
    jobs = {one.job for one in runs if one.job and one.state.may_have_job}
    try:
        known = client.query_jobs(sorted(jobs))
    except (ConfigError, Refused) as error:
        print(f"without Slurm: {error}", file=sys.stderr)
        return runs
    return [
        replace(one, state=with_slurm(one.state, known.get(one.job, SlurmJob())))
        if one.job in jobs and one.state.may_have_job
        else one
        for one in runs
    ]


def _readable_status(run: RunFolder) -> RunStatus:
    """Return the state of a run; a damaged file must not hide the runs beside it."""
    try:
        run.entries()
        return run_status(run)
    except ConfigError as error:
        return RunStatus(run=run, state=RunState(), config={}, job=None, problem=str(error))


def run_status(run: RunFolder) -> RunStatus:
    """Read the state of a run from its folder alone."""
    records = list(run.records())
    state, rate = fold(records), step_rate(records)
    job = awaited_job(run) if state.is_queued else started_job(run)
    return RunStatus(run=run, state=state, config=_config(run), job=job, steps_per_s=rate)


def _config(run: RunFolder) -> dict[str, Any]:
    try:
        return flatten(run.config_tree())
    except ConfigError:
        return {}


def status_row(one: RunStatus) -> Row:
    """Return the state of a run as a row of a table."""
    state, slurm = one.state, one.state.slurm
    rate = one.steps_per_s if state.is_training else None
    # After the last step the run still saves and samples.
    left = (one.steps or 0) - (state.step or 0)
    eta_s = round(left / rate) if rate and left > 0 else None
    progress = "" if state.step is None else f"{state.step}/{one.steps or '?'}"
    is_live = slurm is not None and bool(slurm.state) and not slurm.has_ended
    nodes = (slurm.nodes if slurm else None) or (None if one.problem else _nodes(one.run))
    return {
        "run": str(one.run.path),
        "state": one.word,
        "steps": progress or None,
        "steps_per_s": rate,
        "eta_s": eta_s,
        "left_s": slurm.left_s if slurm and is_live and not slurm.is_waiting else None,
        "start": slurm.started if slurm and slurm.is_waiting else None,
        "attempts": len(one.run.attempts()),
        "job": one.job,
        "nodes": nodes,
        "why": one.problem or _why(one) or None,
    }


def _why(one: RunStatus) -> str:
    """Return why a run is in its state, in a few words; empty if nothing is to be said."""
    state, slurm = one.state, one.state.slurm
    if state.is_stopped:
        return state.message
    if slurm is None or not (state.is_open or state.is_requeued):
        return state.reason or ""
    if not slurm.state:
        return "Slurm no longer knows the job"
    if slurm.has_ended:
        began = "while it started" if one.run.attempts() else "before it started"
        return began if state.is_queued else f"{state.recorded}, without a record of the end"
    return "" if state.is_queued and not slurm.is_waiting else slurm.reason


def _nodes(run: RunFolder) -> str | None:
    attempts = run.entries()
    slurm = attempts[-1].get("slurm", {}) if attempts else {}
    nodes = slurm.get("nodelist")
    return None if nodes is None else str(nodes)
