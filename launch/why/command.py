"""`ditbench why`: a line per attempt, and the whole diagnosis of the newest."""

import os
import re
import shlex
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.table import json_text
from configs.terminal import printable
from launch.slurm.reasons import in_words
from launch.status.state import RunStatus, overview
from launch.submit.site import site_logs
from launch.why.causes import Diagnosis, diagnose
from launch.why.evidence import Evidence, evidence_of_attempts, evidence_of_job
from launch.why.slurm_history import JobStart
from runs.folder import ROOT, RunFolder, is_run
from runs.study_folder import StudyFolder, is_study_folder

_MOST_NAMED = 5


def why(name: str, *, form: str) -> int:
    """Print the cause of the end of a run, a study's runs or a job; return 1 if it is unknown."""
    if is_study_folder(Path(name)):
        return _why_study(StudyFolder(Path(name).resolve()), form=form)
    diagnoses = _diagnoses(name)
    if form == "json":
        print(json_text([to_json(one) for one in diagnoses]))
    else:
        for shown in (*map(title, diagnoses[:-1]), text(diagnoses[-1])):
            print(printable(shown, keep="\n"))
    last = diagnoses[-1]
    return int(last.cause is None and not last.evidence.has_not_ended)


def _diagnoses(name: str) -> list[Diagnosis]:
    """Return the diagnosis of each attempt of a run, or of a job that belongs to none."""
    path = Path(name)
    if is_run(path):
        return [diagnose(evidence) for evidence in evidence_of_attempts(RunFolder(path.resolve()))]
    if path.exists() or not name.replace("_", "").isdigit():
        raise ConfigError(
            f"{name}: not a folder of a run or a study, nor a job id; see ditbench status"
        )
    evidence = evidence_of_job(name, site_logs(ROOT))
    if evidence.start is None and not evidence.logs:
        raise ConfigError(f"job {name}: unknown to Slurm, and no run or output file belongs to it")
    return [diagnose(evidence)]


def _why_study(study: StudyFolder, *, form: str) -> int:
    """Print how the runs of a study ended, those with the same message once."""
    now = overview([study.path])
    states = [str(row["state"]) for row in now.rows]
    groups: dict[tuple[str, str], list[RunStatus]] = defaultdict(list)
    for one, state in zip(now.runs, states, strict=True):
        if one.event in ("failed", "stopped") or state.endswith((", then ended", ", then lost")):
            message = re.sub(r"\d+", "#", str(one.last.get("message", "")))
            groups[state, message].append(one)
    counts = ", ".join(f"{count} {state}" for state, count in Counter(states).most_common())
    print(f"{study.path.name}: {len(states)} runs: {counts}", file=sys.stderr)
    found = []
    for alike in sorted(groups.values(), key=len, reverse=True):
        first = diagnose(evidence_of_attempts(alike[0].run)[-1])
        found.append({"runs": [one.run.name for one in alike]} | to_json(first))
        if form == "text":
            names = ", ".join(one.run.name for one in alike[:_MOST_NAMED])
            more = f" and {len(alike) - _MOST_NAMED} more" if len(alike) > _MOST_NAMED else ""
            same = f"{len(alike)} ended alike: {names}{more}; the first:\n" if alike[1:] else ""
            print(printable(f"{same}{text(first)}", keep="\n"))
    if form == "json":
        print(json_text(found))
    elif groups:
        print(f"all of them again: ditbench rerun {shlex.quote(str(study.path))}")
    return 0


def title(diagnosis: Diagnosis) -> str:
    """Return the run or job, its attempt, and the name of the cause."""
    evidence = diagnosis.evidence
    of = evidence.run.name if evidence.run else f"job {_job(evidence)}"
    attempt = f", attempt {evidence.attempt}" if evidence.attempt else ""
    return f"{of}{attempt}: {diagnosis.cause.name if diagnosis.cause else _state(evidence)}"


def text(diagnosis: Diagnosis) -> str:
    """Return the title, the cause, the evidence and the next command."""
    lines = [title(diagnosis)]
    if diagnosis.cause:
        lines.append(f"  {_what(diagnosis)}")
    if diagnosis.lines:
        lines += ["  evidence:", *(f"    {line}" for line in diagnosis.lines)]
    lines.append(f"  next: {advice(diagnosis)}")
    return "\n".join(lines)


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as JSON data; paths in the evidence are relative to the run."""
    evidence, cause = diagnosis.evidence, diagnosis.cause
    return {
        "run": str(evidence.run.path) if evidence.run else None,
        "job": evidence.start.job if evidence.start else None,
        "attempt": evidence.attempt or None,
        "cause": cause.name if cause else None,
        "what": _what(diagnosis) if cause else _state(evidence),
        "first_failure": diagnosis.first_failure or None,
        "evidence": diagnosis.lines,
        "next": advice(diagnosis),
    }


def advice(diagnosis: Diagnosis) -> str:
    """Return the next command; nothing if Slurm starts the job by itself."""
    evidence, cause = diagnosis.evidence, diagnosis.cause
    run = shlex.quote(_short(evidence.run.path)) if evidence.run else ""
    if waiting := _waiting(evidence):
        look = f"ditbench status {run}" if run else f"squeue --start -j {waiting.job}"
        return f"nothing; {look}"
    if cause is not None:
        return _fill(cause.advice if evidence.is_ours else cause.general, diagnosis)
    if evidence.has_not_ended and run:
        return f"ditbench tail {run}"
    return _fill("see {output}", diagnosis)


def _what(diagnosis: Diagnosis) -> str:
    assert diagnosis.cause is not None
    what = _fill(diagnosis.cause.what, diagnosis)
    if waiting := _waiting(diagnosis.evidence):
        begins = f", may begin {_clock(waiting.started)}" if waiting.started else ""
        what += f", and is queued again (job {waiting.job}{begins})"
    return what


def _waiting(evidence: Evidence) -> JobStart | None:
    return evidence.now if evidence.now and evidence.now.state == "PENDING" else None


def _clock(when: float) -> str:
    is_today = time.strftime("%F") == time.strftime("%F", time.localtime(when))
    return time.strftime("%H:%M:%S" if is_today else "%F %H:%M", time.localtime(when))


def _state(evidence: Evidence) -> str:
    """Return the state of an attempt or a job without a cause."""
    now = _waiting(evidence)
    if now is not None:
        begins = f"; may begin {_clock(now.started)}" if now.started else ""
        return f"waits: {in_words(now.reason)}{begins}"
    if not evidence.has_not_ended:
        return "unknown"
    if evidence.start is None:
        return "unknown: no end is recorded, and Slurm knows no job of the run"
    return "has not ended"


def _fill(words: str, diagnosis: Diagnosis) -> str:
    """Replace the placeholders of a cause's texts."""
    evidence = diagnosis.evidence
    run, start, output = evidence.run, evidence.start, evidence.output
    saved = f"; it saved at step {evidence.end['step']}" if evidence.end.get("step") else ""
    config = run.path if run else _config(evidence)
    preflight = f"ditbench preflight {shlex.quote(_short(config))}" if config else ""
    is_own = run is not None and run.path.stat().st_uid == os.getuid()
    launcher = f"{'you' if is_own else 'a user'}, by ditbench cancel,"
    values = {
        "{resume}": "ditbench submit {run}",
        "{run}": shlex.quote(_short(run.path)) if run else "",
        "{study}": shlex.quote(_short(run.path.parent.parent)) if run else "",
        "{logs}": shlex.quote(_short(run.path.parent)) if run else "",
        "{output}": shlex.quote(_short(output)) if output else f"sacct -j {_job(evidence)}",
        "{nodes}": start.nodes if start and start.nodes else "NODE",
        "{check}": f", check with {preflight}" if preflight else "",
        "{limit}": f"the job's time limit was {'near' if evidence.event == 'paused' else 'over'}",
        "{who}": launcher if evidence.is_cancelled else "a user",
        "{first_failure}": f": {diagnosis.first_failure}" if diagnosis.first_failure else "",
        "{saved}": saved if evidence.event in ("stopped", "paused") else "",
    }
    for placeholder, value in values.items():
        words = words.replace(placeholder, value)
    return words


def _job(evidence: Evidence) -> str:
    known = evidence.start or evidence.now
    return known.job if known else ""


def _config(evidence: Evidence) -> Path | None:
    """Return the config on the command line of a job, while Slurm knows it."""
    words = evidence.now.command.split() if evidence.now else []
    return next((Path(word) for word in words if word.endswith(".yaml")), None)


def _short(path: Path) -> str:
    """Return a path relative to the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
