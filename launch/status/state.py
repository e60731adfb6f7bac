"""The state of runs: their last event, and where that is no end, what Slurm says of the job."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from configs.run.folder import RunFolder, find_runs
from configs.run.records import STATES, Record
from launch.slurm import client, duration
from launch.slurm.client import Job, Refused
from launch.status import submitted_jobs
from launch.status.pace import Pace
from launch.table import Cell, Row

# States that a job has yet to end: Slurm knows more than the record.
OPEN = ("queued", "started", "paused")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One run as its folder tells it."""

    run: RunFolder
    last: Record
    step: int | None
    steps: int | None
    job: str | None
    pace: Pace

    @property
    def event(self) -> str:
        """The event that says what state it is in; empty where it has none yet."""
        return str(self.last.get("event", ""))

    @property
    def is_open(self) -> bool:
        """Whether Slurm is to be asked."""
        return self.event in (*OPEN, "")


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Runs, and what Slurm says of the jobs of those that are open; None where it is silent."""

    standings: list[Standing]
    jobs: dict[str, Job] | None

    @property
    def rows(self) -> list[Row]:
        """A row per run."""
        return [_row(one, self.jobs) for one in self.standings]

    @property
    def open(self) -> bool:
        """Whether any of the runs has yet to end."""
        return any(one.is_open and self._lives(one) for one in self.standings)

    def _lives(self, one: Standing) -> bool:
        if one.job is None or self.jobs is None:
            return True
        return one.job in self.jobs and not self.jobs[one.job].has_ended


def overview(paths: Sequence[Path]) -> Overview:
    """The runs found under `paths`; Slurm is asked once for all of them."""
    standings = [standing(run) for path in paths for run in _runs(path)]
    return Overview(standings=standings, jobs=_jobs([one for one in standings if one.is_open]))


def table(rows: Sequence[Row]) -> list[Row]:
    """Rows as people read them: the time to go in hours and minutes."""
    return [{_HEADS.get(name, name): _spelled(name, row[name]) for name in row} for row in rows]


_HEADS = {"steps_per_s": "steps/s", "eta_s": "eta"}


def _spelled(name: str, value: Cell) -> Cell:
    return duration.spell(float(value)) if name == "eta_s" and value is not None else value


def _runs(path: Path) -> list[RunFolder]:
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; name a run, or a folder of runs")
    return find_runs(path)


def standing(run: RunFolder) -> Standing:
    """What the folder alone tells."""
    last: Record = {}
    step = None
    pace = Pace()
    for record in run.records():
        pace.take(record)
        if record.get("event") in STATES:
            last = record
        if isinstance(record.get("step"), int):
            step = record["step"]
    waits = last.get("event") == "queued"
    job = submitted_jobs.submitted_job(run) if waits else submitted_jobs.begun_job(run)
    return Standing(run=run, last=last, step=step, steps=_steps(run), job=job, pace=pace)


def _steps(run: RunFolder) -> int | None:
    try:
        steps = run.config_tree()["train"]["steps"]
    except (ConfigError, KeyError, TypeError):
        return None
    return int(steps)


def _jobs(standings: Sequence[Standing]) -> dict[str, Job] | None:
    """What Slurm knows of their jobs; None where it cannot be asked."""
    ids = sorted({one.job for one in standings if one.job is not None})
    try:
        return client.jobs(ids)
    except (ConfigError, Refused) as error:
        print(f"Slurm is not asked: {error}", file=sys.stderr)
        return None


def _row(one: Standing, jobs: Mapping[str, Job] | None) -> Row:
    known = jobs.get(one.job or "") if jobs else None
    state, why = one.event or "new", str(one.last.get("reason", ""))
    if one.is_open and one.job is not None and jobs is not None:
        state, why = _with_slurm(one.event, known)
    moves = state in ("running", "started")
    done = "" if one.step is None else f"{one.step}/{one.steps or '?'}"
    return {
        "run": str(one.run.path),
        "state": state,
        "steps": done or None,
        "steps_per_s": one.pace.steps_per_s if moves else None,
        "eta_s": one.pace.eta_s(step=one.step, steps=one.steps) if moves else None,
        "attempts": len(one.run.attempts()),
        "job": one.job,
        "nodes": (known.nodes if known else None) or _nodes(one.run),
        "why": why or None,
    }


def _with_slurm(event: str, job: Job | None) -> tuple[str, str]:
    """The state and its reason, of a run whose record does not end."""
    if job is None:
        return f"{event}, then lost", "Slurm no longer knows the job"
    if job.has_ended:
        return f"{event}, then ended", f"its job is {job.state}"
    if job.state == "PENDING":
        return "queued" if event == "queued" else f"{event}, then requeued", job.reason
    if event == "queued":
        return "starting", ""
    return "running" if job.state == "RUNNING" else job.state.lower(), job.reason


def _nodes(run: RunFolder) -> str | None:
    attempts = run.manifest().get("attempts", [])
    slurm = (attempts[-1].get("slurm") or {}) if attempts else {}
    nodes = slurm.get("nodelist")
    return None if nodes is None else str(nodes)
