"""`python -m launch why`: one verdict per attempt, the newest whole."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.run.folder import ROOT, RunFolder, find_runs, is_run
from configs.terminal import printable
from launch.status import submitted_jobs
from launch.submit.site import logs_of_site
from launch.why.causes import Diagnosis, judge
from launch.why.evidence import Evidence, evidence_of_attempts, evidence_of_job


def why(name: str, *, form: str) -> int:
    """Say what ended a run, or a job by its id; 1 where nothing tells it."""
    run, verdicts = _verdicts(name)
    if form == "json":
        print(json.dumps([_to_json(one) for one in verdicts], indent=1))
    else:
        for one in verdicts[:-1]:
            print(printable(_title(one, run), keep="\n"))
        print(printable(_text(verdicts[-1], run), keep="\n"))
    return int(verdicts[-1].cause is None and not _goes_on(verdicts[-1].scene))


def _verdicts(name: str) -> tuple[RunFolder | None, list[Diagnosis]]:
    path = Path(name)
    if is_run(path):
        run: RunFolder | None = RunFolder(path.resolve())
    elif path.exists() or not name.replace("_", "").isdigit():
        raise ConfigError(f"{name}: no run's folder and no job's id; see python -m launch status")
    else:
        run = _run_of(name, logs_of_site(ROOT))
    if run is not None:
        return run, [judge(scene) for scene in evidence_of_attempts(run)]
    scene = evidence_of_job(name, logs_of_site(ROOT))
    if scene.start is None and not scene.texts:
        raise ConfigError(f"job {name}: Slurm knows nothing of it, and no run and no output does")
    return None, [judge(scene)]


def _run_of(job: str, logs: Path) -> RunFolder | None:
    """The run that a job was for."""
    found = [
        run
        for run in (find_runs(logs) if logs.is_dir() else [])
        if job in (submitted_jobs.begun_job(run), submitted_jobs.submitted_job(run))
        or run.name.endswith(f"-{job}")
    ]
    if len(found) > 1:
        print(f"job {job} is of {len(found)} runs: {found[-1].path} is told of", file=sys.stderr)
    return found[-1] if found else None


def _goes_on(scene: Evidence) -> bool:
    """Whether nothing has ended the attempt yet."""
    return scene.event in ("", "queued") and (scene.start is None or not scene.start.is_over)


def _name(verdict: Diagnosis) -> str:
    if verdict.cause is not None:
        return verdict.cause.name
    scene = verdict.scene
    if not _goes_on(scene):
        return "unknown"
    if scene.start is None:
        return "unknown: no end is recorded, and Slurm knows no job of it"
    waits = scene.start.state == "PENDING"
    return f"waits ({scene.start.reason})" if waits else "has not ended"


def _title(verdict: Diagnosis, run: RunFolder | None) -> str:
    scene = verdict.scene
    of = run.name if run else f"job {scene.start.job if scene.start else ''}".strip()
    attempt = f", attempt {scene.attempt}" if scene.attempt else ""
    return f"{of}{attempt}: {_name(verdict)}"


def _text(verdict: Diagnosis, run: RunFolder | None) -> str:
    lines = [_title(verdict, run)]
    if verdict.cause:
        lines.append(f"  {_fill(verdict.cause.what, verdict)}")
    if verdict.evidence:
        lines += ["  evidence:", *(f"    {line}" for line in dict.fromkeys(verdict.evidence))]
    lines.append(f"  next: {_advice(verdict)}")
    return "\n".join(lines)


def _advice(verdict: Diagnosis) -> str:
    scene = verdict.scene
    if verdict.cause:
        return _fill(verdict.cause.advice, verdict)
    if _goes_on(scene) and scene.run:
        return f"python -m launch tail {shlex.quote(_near(scene.run.path))}"
    where = scene.folder or "the job's own output"
    return f"read {where}; sacct -j JOB says what Slurm saw"


def _fill(text: str, verdict: Diagnosis) -> str:
    scene = verdict.scene
    run = scene.run.path if scene.run else None
    saved = f"; it saved at step {scene.end['step']}" if scene.end.get("step") else ""
    said = {
        "{run}": shlex.quote(_near(run)) if run else "RUN",
        "{logs}": shlex.quote(_near(run.parent)) if run else "LOGS",
        "{attempt}": shlex.quote(_near(scene.folder)) if scene.folder else "RUN/attempts/NNN",
        "{nodes}": scene.start.nodes if scene.start and scene.start.nodes else "NODE",
        "{culprit}": f": {verdict.culprit}" if verdict.culprit else "",
        "{saved}": saved if scene.event in ("stopped", "paused") else "",
    }
    for word, value in said.items():
        text = text.replace(word, value)
    return text


def _near(path: Path) -> str:
    """A path as it is shortest from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _to_json(verdict: Diagnosis) -> dict[str, Any]:
    scene = verdict.scene
    said = {
        "run": str(scene.run.path) if scene.run else None,
        "job": scene.start.job if scene.start else None,
        "attempt": scene.attempt or None,
        "cause": verdict.cause.name if verdict.cause else None,
        "what": _fill(verdict.cause.what, verdict) if verdict.cause else _name(verdict),
        "culprit": verdict.culprit or None,
        "evidence": list(dict.fromkeys(verdict.evidence)),
        "next": _advice(verdict),
    }
    return {name: value for name, value in said.items() if value is not None}
