"""`python -m launch why`: a line per attempt, and the whole diagnosis of the newest."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.run.folder import ROOT, RunFolder, find_runs, is_run
from configs.terminal import printable
from launch.status.jobs import started_job, submitted_job
from launch.submit.site import site_logs
from launch.why.causes import Diagnosis, diagnose
from launch.why.evidence import Evidence, evidence_of_attempts, evidence_of_job


def why(name: str, *, form: str) -> int:
    """Print the cause of the end of a run, or of a job by its id; return 1 if it is unknown."""
    run, diagnoses = _diagnoses(name)
    if form == "json":
        print(json.dumps([_to_json(one) for one in diagnoses], indent=1))
    else:
        for one in diagnoses[:-1]:
            print(printable(_title(one, run), keep="\n"))
        print(printable(_text(diagnoses[-1], run), keep="\n"))
    last = diagnoses[-1]
    return int(last.cause is None and not _has_not_ended(last.evidence))


def _diagnoses(name: str) -> tuple[RunFolder | None, list[Diagnosis]]:
    path = Path(name)
    if is_run(path):
        run: RunFolder | None = RunFolder(path.resolve())
    elif path.exists() or not name.replace("_", "").isdigit():
        raise ConfigError(f"{name}: not a run's folder or a job id; see python -m launch status")
    else:
        run = _run_of(name, site_logs(ROOT))
    if run is not None:
        return run, [diagnose(evidence) for evidence in evidence_of_attempts(run)]
    evidence = evidence_of_job(name, site_logs(ROOT))
    if evidence.start is None and not evidence.logs:
        raise ConfigError(f"job {name}: unknown to Slurm, and no run or output file belongs to it")
    return None, [diagnose(evidence)]


def _run_of(job: str, logs: Path) -> RunFolder | None:
    """Return the run that a job belongs to."""
    found = [
        run
        for run in (find_runs(logs) if logs.is_dir() else [])
        if job in (started_job(run), submitted_job(run)) or run.name.endswith(f"-{job}")
    ]
    if len(found) > 1:
        print(f"job {job} has {len(found)} runs; showing {found[-1].path}", file=sys.stderr)
    return found[-1] if found else None


def _has_not_ended(evidence: Evidence) -> bool:
    is_open = evidence.event in ("", "queued")
    return is_open and (evidence.start is None or not evidence.start.is_over)


def _name(diagnosis: Diagnosis) -> str:
    if diagnosis.cause is not None:
        return diagnosis.cause.name
    start = diagnosis.evidence.start
    if not _has_not_ended(diagnosis.evidence):
        return "unknown"
    if start is None:
        return "unknown: no end is recorded, and Slurm knows no job of the run"
    return f"waits ({start.reason})" if start.state == "PENDING" else "has not ended"


def _title(diagnosis: Diagnosis, run: RunFolder | None) -> str:
    evidence = diagnosis.evidence
    of = run.name if run else f"job {evidence.start.job if evidence.start else ''}".strip()
    attempt = f", attempt {evidence.attempt}" if evidence.attempt else ""
    return f"{of}{attempt}: {_name(diagnosis)}"


def _text(diagnosis: Diagnosis, run: RunFolder | None) -> str:
    lines = [_title(diagnosis, run)]
    if diagnosis.cause:
        lines.append(f"  {_fill(diagnosis.cause.what, diagnosis)}")
    if diagnosis.lines:
        lines += ["  evidence:", *(f"    {line}" for line in dict.fromkeys(diagnosis.lines))]
    lines.append(f"  next: {_advice(diagnosis)}")
    return "\n".join(lines)


def _advice(diagnosis: Diagnosis) -> str:
    evidence = diagnosis.evidence
    if diagnosis.cause:
        return _fill(diagnosis.cause.advice, diagnosis)
    if _has_not_ended(evidence) and evidence.run:
        return f"python -m launch tail {shlex.quote(_short(evidence.run.path))}"
    return f"read {evidence.folder or 'the output of the job'}; ask Slurm with sacct -j JOB"


def _fill(text: str, diagnosis: Diagnosis) -> str:
    """Replace the placeholders of a cause's texts."""
    evidence = diagnosis.evidence
    run, start = evidence.run, evidence.start
    saved = f"; it saved at step {evidence.end['step']}" if evidence.end.get("step") else ""
    values = {
        "{run}": shlex.quote(_short(run.path)) if run else "RUN",
        "{logs}": shlex.quote(_short(run.path.parent)) if run else "LOGS",
        "{attempt}": (
            shlex.quote(_short(evidence.folder)) if evidence.folder else "RUN/attempts/NNN"
        ),
        "{nodes}": start.nodes if start and start.nodes else "NODE",
        "{first_failure}": f": {diagnosis.first_failure}" if diagnosis.first_failure else "",
        "{saved}": saved if evidence.event in ("stopped", "paused") else "",
    }
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def _short(path: Path) -> str:
    """Return a path relative to the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    evidence, cause = diagnosis.evidence, diagnosis.cause
    fields = {
        "run": str(evidence.run.path) if evidence.run else None,
        "job": evidence.start.job if evidence.start else None,
        "attempt": evidence.attempt or None,
        "cause": cause.name if cause else None,
        "what": _fill(cause.what, diagnosis) if cause else _name(diagnosis),
        "first_failure": diagnosis.first_failure or None,
        "evidence": list(dict.fromkeys(diagnosis.lines)),
        "next": _advice(diagnosis),
    }
    return {name: value for name, value in fields.items() if value is not None}
