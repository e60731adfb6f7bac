"""The state of runs: the last event of the record and, until a run has ended, its Slurm job."""

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from configs.errors import ConfigError
from configs.run.folder import RunFolder, find_runs
from configs.run.records import STATES, Record
from launch.slurm import client
from launch.slurm.client import Job, Refused
from launch.status.jobs import started_job, submitted_job
from launch.table import Cell, Row

# A run in one of these states has a job that may know more than the record.
UNFINISHED = ("queued", "started", "paused")
# The step rate is measured over this many of the newest records.
RECENT_RECORDS = 32


@dataclass(kw_only=True)
class StepRate:
    """Steps per wall second over an attempt's newest records, saves and samples included."""

    _attempt: int | None = None
    _points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT_RECORDS))

    def add(self, record: Record) -> None:
        """Take the next record of the run."""
        if record.get("attempt") != self._attempt:
            # The time between two attempts is not training time.
            self._attempt = record.get("attempt")
            self._points.clear()
        if "event" not in record and isinstance(record.get("step"), int):
            self._points.append((float(record["time"]), int(record["step"])))

    @property
    def steps_per_s(self) -> float | None:
        """Steps per second of wall time; None before there are two records."""
        if len(self._points) < 2:
            return None
        (begin, first), (end, last) = self._points[0], self._points[-1]
        return (last - first) / (end - begin) if end > begin and last > first else None

    def eta_s(self, *, step: int | None, steps: int | None) -> int | None:
        """Return the seconds until `steps` at this rate."""
        if step is None or not steps or self.steps_per_s is None:
            return None
        return round(max(0, steps - step) / self.steps_per_s)


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run according to its folder; `last` is its last event."""

    run: RunFolder
    last: Record
    step: int | None
    steps: int | None
    job: str | None
    rate: StepRate

    @property
    def event(self) -> str:
        """The name of the last event, empty before the first."""
        return str(self.last.get("event", ""))

    @property
    def is_unfinished(self) -> bool:
        """Whether the record has no end, so that Slurm has to be asked."""
        return self.event in (*UNFINISHED, "")


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The state of runs and the jobs of the unfinished ones; `jobs` is None if Slurm is silent."""

    runs: list[RunStatus]
    jobs: dict[str, Job] | None

    @property
    def rows(self) -> list[Row]:
        """A row per run."""
        return [_row(one, self.jobs) for one in self.runs]

    @property
    def is_unfinished(self) -> bool:
        """Whether any run may still go on."""
        return any(one.is_unfinished and self._may_run(one) for one in self.runs)

    def _may_run(self, one: RunStatus) -> bool:
        if one.job is None or self.jobs is None:
            return True
        return one.job in self.jobs and not self.jobs[one.job].has_ended


def overview(paths: Sequence[Path]) -> Overview:
    """Return the state of all runs under `paths`; query Slurm once for all of them."""
    runs = [run_status(run) for path in paths for run in _runs(path)]
    return Overview(runs=runs, jobs=_jobs([one for one in runs if one.is_unfinished]))


def table(rows: Sequence[Row]) -> list[Row]:
    """Return rows for people, with the time to go in hours and minutes."""
    return [{_HEADS.get(name, name): _formatted(name, row[name]) for name in row} for row in rows]


_HEADS = {"steps_per_s": "steps/s", "eta_s": "eta"}


def _formatted(name: str, value: Cell) -> Cell:
    if name == "eta_s" and value is not None:
        return client.format_duration(float(value))
    return value


def _runs(path: Path) -> list[RunFolder]:
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; name a run, or a folder of runs")
    return find_runs(path)


def run_status(run: RunFolder) -> RunStatus:
    """Read the state of a run from its folder alone."""
    last: Record = {}
    step = None
    rate = StepRate()
    for record in run.records():
        rate.add(record)
        if record.get("event") in STATES:
            last = record
        if isinstance(record.get("step"), int):
            step = record["step"]
    job = submitted_job(run) if last.get("event") == "queued" else started_job(run)
    return RunStatus(run=run, last=last, step=step, steps=_steps(run), job=job, rate=rate)


def _steps(run: RunFolder) -> int | None:
    try:
        steps = run.config_tree()["train"]["steps"]
    except (ConfigError, KeyError, TypeError):
        return None
    return int(steps)


def _jobs(runs: Sequence[RunStatus]) -> dict[str, Job] | None:
    try:
        return client.query_jobs(sorted({one.job for one in runs if one.job is not None}))
    except (ConfigError, Refused) as error:
        print(f"without Slurm: {error}", file=sys.stderr)
        return None


def _row(one: RunStatus, jobs: Mapping[str, Job] | None) -> Row:
    known = jobs.get(one.job or "") if jobs else None
    state, why = one.event or "new", str(one.last.get("reason", ""))
    if one.is_unfinished and one.job is not None and jobs is not None:
        state, why = _with_slurm(one.event, known)
    is_running = state in ("running", "started")
    progress = "" if one.step is None else f"{one.step}/{one.steps or '?'}"
    return {
        "run": str(one.run.path),
        "state": state,
        "steps": progress or None,
        "steps_per_s": one.rate.steps_per_s if is_running else None,
        "eta_s": one.rate.eta_s(step=one.step, steps=one.steps) if is_running else None,
        "attempts": len(one.run.attempts()),
        "job": one.job,
        "nodes": (known.nodes if known else None) or _nodes(one.run),
        "why": why or None,
    }


def _with_slurm(event: str, job: Job | None) -> tuple[str, str]:
    """Return the state and its reason for a run whose record has no end."""
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
