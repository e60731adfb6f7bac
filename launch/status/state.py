"""The state of runs: the last event of the record and, until a run has ended, its Slurm job."""

import statistics
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.load import flatten
from configs.progress import counted
from configs.table import Row
from launch.slurm import client
from launch.slurm.client import Job, Refused
from runs.folder import RunFolder, find_runs
from runs.gpu_log import GpuLog, read_gpu_logs
from runs.jobs import CANCELLED, awaited_job, started_job, submitted_jobs
from runs.records import STATES, Record, is_number
from runs.slowdown import Load, gpu_load, slowdowns

# A run in one of these states has a job that may know more than the record.
UNFINISHED = ("queued", "started", "paused")
# The state of a run with a damaged file.
UNREADABLE = "unreadable"
# The step rate is measured over this many of the newest records.
RECENT_RECORDS = 32
# The present load is that of GPUs in so many seconds, and of records over so many at least.
RECENT_S, MIN_TRAIN_S = 60.0, 10.0
# Further nodes would not fit.
_MOST_NODES = 4


@dataclass(kw_only=True)
class StepRate:
    """Steps per wall second over an attempt's newest records, saves and samples included."""

    _attempt: int | None = None
    _points: deque[Record] = field(default_factory=lambda: deque(maxlen=RECENT_RECORDS))

    def add(self, record: Record) -> None:
        """Take the next record of the run."""
        if record.get("attempt") != self._attempt:
            # The time between two attempts is not training time.
            self._attempt = record.get("attempt")
            self._points.clear()
        if "event" not in record and isinstance(record.get("step"), int):
            self._points.append(record)

    @property
    def steps_per_s(self) -> float | None:
        """Steps per second of wall time; None before there are two records."""
        if len(self._points) < 2:
            return None
        first, last = self._points[0], self._points[-1]
        steps, seconds = last["step"] - first["step"], last["time"] - first["time"]
        return steps / seconds if seconds > 0 and steps > 0 else None

    def load(self, gpus: Sequence[GpuLog]) -> Load:
        """Return the load of these records, and of the last minute of `gpus`."""
        known: dict[str, float] = {}
        clocks = ("train_s", "data_s")
        timed = [one for one in self._points if all(is_number(one.get(n)) for n in clocks)]
        train_s, data_s = (timed[-1][n] - timed[0][n] if timed else 0.0 for n in clocks)
        if train_s >= MIN_TRAIN_S:
            known["data"] = data_s / train_s
            bound = [one["host_bound"] for one in timed[1:] if is_number(one.get("host_bound"))]
            known |= {"host_bound": statistics.fmean(bound)} if bound else {}
        since = time.time() - RECENT_S
        return gpu_load([gpus], lambda row: row["span_s"] * (row["time"] > since), **known)

    def eta_s(self, *, step: int | None, steps: int | None) -> int | None:
        """Return the seconds until `steps` at this rate."""
        if step is None or not steps or self.steps_per_s is None:
            return None
        return round(max(0, steps - step) / self.steps_per_s)


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run according to its folder.

    `last` is its last event, `doing` is "saving", "evaluating" or "sampling", "" while it trains,
    and `config` has dotted keys; it is empty if it cannot be read. `job` is the one that started
    the run last, or that may still start it.
    """

    run: RunFolder
    last: Record
    step: int | None
    config: dict[str, Any]
    job: str | None
    rate: StepRate
    doing: str

    @property
    def steps(self) -> int | None:
        """The step at which the run ends."""
        steps = self.config.get("train.steps")
        return steps if isinstance(steps, int) else None

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
    found = [run for path in paths for run in _runs(path)]
    runs = [_readable_status(run) for run in counted(found, "reading the state of runs")]
    return Overview(runs=runs, jobs=_jobs([one for one in runs if one.is_unfinished]))


def _readable_status(run: RunFolder) -> RunStatus:
    """Return the state of a run; a damaged file must not hide the runs beside it."""
    try:
        run.entries()
        return run_status(run)
    except ConfigError as error:
        last = {"event": UNREADABLE, "message": str(error)}
        return RunStatus(
            run=run, last=last, step=None, config={}, job=None, rate=StepRate(), doing=""
        )


def _runs(path: Path) -> list[RunFolder]:
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; name a run, or a folder of runs")
    return find_runs(path)


def run_status(run: RunFolder) -> RunStatus:
    """Read the state of a run from its folder alone."""
    last: Record = {}
    step = None
    rate, since = StepRate(), set[str]()  # the events after the last training step
    for record in run.records():
        rate.add(record)
        if record.get("event") in STATES:
            last = record
        if isinstance(record.get("step"), int):
            step = record["step"]
        if "loss" in record:
            since = set()
        elif "event" in record:
            since.add(record["event"])
    config = _config(run)
    trains = step is not None and "started" not in since
    doing = _activity(run, config, step or 0, since) if trains else ""
    job = awaited_job(run) if last.get("event") == "queued" else started_job(run)
    return RunStatus(run=run, last=last, step=step, config=config, job=job, rate=rate, doing=doing)


def _config(run: RunFolder) -> dict[str, Any]:
    try:
        return flatten(run.config_tree())
    except ConfigError:
        return {}


def _activity(run: RunFolder, config: dict[str, Any], step: int, since: set[str]) -> str:
    """Return what a run does after the steps that it recorded last, "" while it trains.

    `since` are the events after that record. The order is that of the training loop.
    """
    if config.get("engine") not in (None, "embedded"):
        return ""  # the record of another program has no such order
    is_last = step == config.get("train.steps")

    def is_due(key: str) -> bool:
        every = config.get(key)
        return is_last or (isinstance(every, int) and step % every == 0)

    is_saved = "saved" in since
    if is_due("checkpoint.every") and not (is_saved or config.get("checkpoint.asynchronous")):
        return "saving"
    if config.get("data.held_out") and is_due("validation.every") and "evaluated" not in since:
        return "evaluating"
    if is_due("sample.every") and not (run.samples / f"step-{step:09d}.png").exists():
        return "sampling"
    return "saving" if is_last and not is_saved else ""


def _jobs(runs: Sequence[RunStatus]) -> dict[str, Job] | None:
    try:
        return client.query_jobs(sorted({one.job for one in runs if one.job}))
    except (ConfigError, Refused) as error:
        print(f"without Slurm: {error}", file=sys.stderr)
        return None


def _row(one: RunStatus, jobs: Mapping[str, Job] | None) -> Row:
    known = jobs.get(one.job or "") if jobs else None
    is_readable = one.event != UNREADABLE
    state, why = one.event or "new", str(one.last.get("reason", ""))
    if one.is_unfinished and one.job is not None and jobs is not None:
        state, why = _with_slurm(one, known)
    elif state == "stopped" or not is_readable:
        why = str(one.last.get("message") or _stopped_by(one))
    if state in ("running", "started") and one.doing:
        state = one.doing
    is_training = state in ("running", "started")
    eta_s = one.rate.eta_s(step=one.step, steps=one.steps) if is_training else None
    load, gpus = _load(one) if is_training or state == one.doing else (Load(), None)
    if is_training and not why:
        # `speed` also names what can be changed.
        why = "; ".join(cause.partition(";")[0] for cause in slowdowns(load, one.config))
    is_waiting = known is not None and known.state == "PENDING"
    progress = "" if one.step is None else f"{one.step}/{one.steps or '?'}"
    return {
        "run": str(one.run.path),
        "state": state,
        "steps": progress or None,
        "steps_per_s": one.rate.steps_per_s if is_training else None,
        "eta_s": eta_s,
        "finish": None if eta_s is None else round(time.time() + eta_s),
        "gpu_busy": load.busy,
        "power_w": load.power_w,
        "gpus": gpus,
        "left_s": known.left_s if known and not is_waiting and not known.has_ended else None,
        "start": known.start if known and is_waiting else None,
        "attempts": len(one.run.attempts()),
        "job": one.job,
        "nodes": (known.nodes if known else None) or (_nodes(one.run) if is_readable else None),
        "why": why or None,
    }


def _load(one: RunStatus) -> tuple[Load, str | None]:
    """Return the present load of a run, and how busy the GPUs of each node are."""
    logs = read_gpu_logs(one.run.attempt(max(one.run.attempts(), default=1)), recent=True)
    texts = []
    for node in dict.fromkeys(log.node for log in logs):
        of = one.rate.load([log for log in logs if log.node == node])
        busy = "" if of.busy is None else f" {of.busy:.0%}"
        power = "" if of.power_w is None else f" {of.power_w:.0f} W"
        texts += [node + busy + power] if of.gpus else []
    more = [f"+{len(texts) - _MOST_NODES} nodes"] if len(texts) > _MOST_NODES else []
    return one.rate.load(logs), ", ".join(texts[:_MOST_NODES] + more) or None


def _with_slurm(one: RunStatus, job: Job | None) -> tuple[str, str]:
    """Return the state and its reason for a run whose record has no end."""
    if job is None:
        return "lost", "Slurm no longer knows the job"
    if job.has_ended:
        began = "while it started" if one.run.attempts() else "before it started"
        when = began if one.event == "queued" else f"{one.event}, without a record of the end"
        return job.state.lower().replace("_", " "), when
    if job.state == "PENDING":
        return "queued" if one.event == "queued" else "requeued", job.reason
    if one.event == "queued":
        return "starting", ""
    return job.state.lower(), job.reason


def _stopped_by(one: RunStatus) -> str:
    """Return how a person stopped a run: the body of a job passes the signal of scancel on."""
    attempts = one.run.attempts()
    if attempts and (one.run.attempt(attempts[-1]) / CANCELLED).exists():
        return "launch cancel"
    if one.run.stop_file.exists():
        return "file STOP"
    return "scancel" if one.job in submitted_jobs(one.run) else "signal: Ctrl-C or kill"


def _nodes(run: RunFolder) -> str | None:
    attempts = run.entries()
    slurm = attempts[-1].get("slurm", {}) if attempts else {}
    nodes = slurm.get("nodelist")
    return None if nodes is None else str(nodes)
