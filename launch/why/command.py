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
from launch.why.diagnosis import Diagnosis
from launch.why.evidence import diagnoses_of_run, diagnosis_of_job
from runs.folder import ROOT, RunFolder, is_run
from runs.state.evidence import Evidence
from runs.state.slurm_job import SlurmJob
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
    return int(last.reason is None and not last.has_not_ended)


def _diagnoses(name: str) -> list[Diagnosis]:
    """Return the diagnosis of each attempt of a run, or of a job that belongs to none."""
    path = Path(name)
    if is_run(path):
        return diagnoses_of_run(RunFolder(path.resolve()))
    if path.exists() or not name.replace("_", "").isdigit():
        raise ConfigError(
            f"{name}: not a folder of a run or a study, nor a job id; see ditbench status"
        )
    found = diagnosis_of_job(name, site_logs(ROOT))
    if found.start is None and not found.process.logs:
        raise ConfigError(f"job {name}: unknown to Slurm, and no run or output file belongs to it")
    return [found]


def _why_study(study: StudyFolder, *, form: str) -> int:
    """Print how the runs of a study ended, those with the same message once."""
    runs = overview([study.path])
    states = [one.word for one in runs]
    groups: dict[tuple[str, str], list[RunStatus]] = defaultdict(list)
    for one in runs:
        if one.state.is_failed or one.state.is_stopped:
            message = re.sub(r"\d+", "#", one.state.message)
            groups[one.word, message].append(one)
    counts = ", ".join(f"{count} {state}" for state, count in Counter(states).most_common())
    print(f"{study.path.name}: {len(states)} runs: {counts}", file=sys.stderr)
    found = []
    for alike in sorted(groups.values(), key=len, reverse=True):
        first = diagnoses_of_run(alike[0].run)[-1]
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
    """Return the run or job, its attempt, and the name of the reason."""
    process = diagnosis.process
    of = process.run.name if process.run else f"job {_job(diagnosis)}"
    attempt = f", attempt {process.attempt}" if process.attempt else ""
    return f"{of}{attempt}: {diagnosis.reason.title if diagnosis.reason else _state(diagnosis)}"


def text(diagnosis: Diagnosis) -> str:
    """Return the title, the reason, the evidence and the next command."""
    lines = [title(diagnosis)]
    if diagnosis.reason:
        lines.append(f"  {_meaning(diagnosis)}")
    if diagnosis.lines:
        lines += ["  evidence:", *(f"    {line}" for line in diagnosis.lines)]
    lines.append(f"  next: {advice(diagnosis)}")
    return "\n".join(lines)


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as JSON data; paths in the evidence are relative to the run."""
    process, start, reason = diagnosis.process, diagnosis.start, diagnosis.reason
    return {
        "run": str(process.run.path) if process.run else None,
        "job": start.job if start else None,
        "attempt": process.attempt or None,
        "cause": reason.title if reason else None,
        "what": _meaning(diagnosis) if reason else _state(diagnosis),
        "first_failure": diagnosis.first_failure or None,
        "evidence": diagnosis.lines,
        "next": advice(diagnosis),
    }


def advice(diagnosis: Diagnosis) -> str:
    """Return the next command; nothing if Slurm starts the job by itself."""
    process, reason = diagnosis.process, diagnosis.reason
    run = shlex.quote(_short(process.run.path)) if process.run else ""
    if waiting := _waiting(diagnosis):
        look = f"ditbench status {run}" if run else f"squeue --start -j {waiting.job}"
        return f"nothing; {look}"
    if reason is not None:
        advised = reason.advice_for(_kind(process)) if process.is_ours else reason.general
        return _fill(advised, diagnosis)
    if diagnosis.has_not_ended and run:
        return f"ditbench tail {run}"
    return _fill("see {output}", diagnosis)


def _kind(process: Evidence) -> str:
    """Return the kind of the run, empty if there is none or its config cannot be read."""
    try:
        return str(process.run.config_tree().get("kind", "pretrain")) if process.run else ""
    except ConfigError:
        return ""


def _meaning(diagnosis: Diagnosis) -> str:
    reason = diagnosis.reason
    assert reason is not None
    is_whole = reason.passes is None or "{first_failure}" in reason.meaning
    what = _fill(reason.meaning + ("" if is_whole else "{first_failure}"), diagnosis)
    if waiting := _waiting(diagnosis):
        begins = f", may begin {_clock(waiting.started)}" if waiting.started else ""
        what += f", and is queued again (job {waiting.job}{begins})"
    return what


def _waiting(diagnosis: Diagnosis) -> SlurmJob | None:
    now = diagnosis.now
    return now if now and now.is_waiting else None


def _clock(when: float) -> str:
    is_today = time.strftime("%F") == time.strftime("%F", time.localtime(when))
    return time.strftime("%H:%M:%S" if is_today else "%F %H:%M", time.localtime(when))


def _state(diagnosis: Diagnosis) -> str:
    """Return the state of an attempt or a job without a reason."""
    now = _waiting(diagnosis)
    if now is not None:
        begins = f"; may begin {_clock(now.started)}" if now.started else ""
        return f"waits: {in_words(now.reason)}{begins}"
    if not diagnosis.has_not_ended:
        return "unknown"
    if diagnosis.start is None:
        return "unknown: no end is recorded, and Slurm knows no job of the run"
    return "has not ended"


def _fill(words: str, diagnosis: Diagnosis) -> str:
    """Replace the placeholders of reasons.yaml."""
    process, start, state = diagnosis.process, diagnosis.start, diagnosis.state
    run, output = process.run, process.output
    saves = state.is_stopped or state.is_paused
    saved = f"; it saved at step {state.last['step']}" if state.last.get("step") and saves else ""
    config = run.path if run else _config(diagnosis)
    check = f"ditbench check {shlex.quote(_short(config))}" if config else ""
    is_own = run is not None and run.path.stat().st_uid == os.getuid()
    launcher = f"{'you' if is_own else 'a user'}, by ditbench cancel,"
    values = {
        "{resume}": "ditbench submit {run}",
        "{run}": shlex.quote(_short(run.path)) if run else "",
        "{study}": shlex.quote(_short(run.path.parent.parent)) if run else "",
        "{logs}": shlex.quote(_short(run.path.parent)) if run else "",
        "{output}": shlex.quote(_short(output)) if output else f"sacct -j {_job(diagnosis)}",
        "{nodes}": start.nodes if start and start.nodes else "NODE",
        "{check}": f", check with {check}" if check else "",
        "{limit}": f"the job's time limit was {'near' if state.is_paused else 'over'}",
        "{who}": launcher if state.was_cancelled_here or process.is_marked_cancelled else "a user",
        "{first_failure}": f": {diagnosis.first_failure}" if diagnosis.first_failure else "",
        "{saved}": saved,
    }
    for placeholder, value in values.items():
        words = words.replace(placeholder, value)
    return words


def _job(diagnosis: Diagnosis) -> str:
    known = diagnosis.start or diagnosis.now
    return known.job if known else ""


def _config(diagnosis: Diagnosis) -> Path | None:
    """Return the config on the command line of a job, while Slurm knows it."""
    now = diagnosis.now
    words = now.command.split() if now else []
    return next((Path(word) for word in words if word.endswith(".yaml")), None)


def _short(path: Path) -> str:
    """Return a path relative to the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
