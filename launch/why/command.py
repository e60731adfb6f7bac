"""`ditbench why`: a line per attempt, and the whole diagnosis of the newest."""

import os
import re
import shlex
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.table import json_text
from configs.terminal import printable
from launch.slurm.history import clock, in_words
from launch.status.state import RunStatus, overview
from launch.why.diagnosis import Diagnosis, diagnoses_of_run
from runs.folder import RunFolder, is_run
from runs.jobs import WHILE_WAITING
from runs.state.slurm_job import SlurmJob
from runs.study_folder import StudyFolder, is_study_folder

_MOST_NAMED = 5


def why(name: str, *, form: str) -> int:
    """Print the cause of the end of a run or of a study's runs; return 1 if it is unknown."""
    path = Path(name)
    if is_study_folder(path):
        return _why_study(StudyFolder(path.resolve()), form=form)
    if not is_run(path):
        raise ConfigError(
            f"{name}: not a folder of a run or a study, nor the job of one; see ditbench status"
        )
    diagnoses = diagnoses_of_run(RunFolder(path.resolve()))
    if form == "json":
        print(json_text([to_json(one) for one in diagnoses]))
    else:
        for shown in (*map(title, diagnoses[:-1]), text(diagnoses[-1])):
            print(printable(shown, keep="\n"))
    last = diagnoses[-1]
    return int(last.reason is None and not last.has_not_ended)


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
    """Return the run, its attempt, and the name of the reason."""
    process = diagnosis.process
    attempt = f", attempt {process.attempt}" if process.attempt else ""
    cause = diagnosis.reason.title if diagnosis.reason else _state(diagnosis)
    return f"{process.run.name}{attempt}: {cause}"


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
    process, start, reason = diagnosis.process, diagnosis.state.slurm, diagnosis.reason
    return {
        "run": str(process.run.path),
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
    run = shlex.quote(_short(process.run.path))
    if _waiting(diagnosis):
        return f"nothing; ditbench status {run}"
    if reason is not None:
        return _fill(reason.advice_for(_kind(process.run)), diagnosis)
    if diagnosis.has_not_ended:
        return f"ditbench tail {run}"
    return _fill("see {output}", diagnosis)


def _kind(run: RunFolder) -> str:
    """Return the kind of a run, empty if its config cannot be read."""
    try:
        return str(run.config_tree().get("kind", "pretrain"))
    except ConfigError:
        return ""


def _meaning(diagnosis: Diagnosis) -> str:
    reason = diagnosis.reason
    assert reason is not None
    is_whole = reason.passes is None or "{first_failure}" in reason.meaning
    what = _fill(reason.meaning + ("" if is_whole else "{first_failure}"), diagnosis)
    if waiting := _waiting(diagnosis):
        begins = f", may begin {clock(waiting.started)}" if waiting.started else ""
        what += f", and is queued again (job {waiting.job}{begins})"
    return what


def _waiting(diagnosis: Diagnosis) -> SlurmJob | None:
    now = diagnosis.now
    return now if now and now.is_waiting else None


def _state(diagnosis: Diagnosis) -> str:
    """Return the state of an attempt without a reason."""
    now = _waiting(diagnosis)
    if now is not None:
        begins = f"; may begin {clock(now.started)}" if now.started else ""
        return f"waits: {in_words(now.reason)}{begins}"
    if not diagnosis.has_not_ended:
        return "unknown"
    if diagnosis.state.slurm is None:
        return "unknown: no end is recorded, and Slurm knows no job of the run"
    return "has not ended"


def _fill(words: str, diagnosis: Diagnosis) -> str:
    """Replace the placeholders of reasons.yaml."""
    process, start, state = diagnosis.process, diagnosis.state.slurm, diagnosis.state
    run, output = process.run, diagnosis.output
    saves = state.is_stopped or state.is_paused
    saved = f"; it saved at step {state.last['step']}" if state.last.get("step") and saves else ""
    job = next((one.job for one in (start, diagnosis.now) if one), "")
    is_own = run.path.stat().st_uid == os.getuid()
    is_ours = process.is_marked_cancelled or WHILE_WAITING in state.message
    launcher = f"{'you' if is_own else 'a user'}, by ditbench cancel,"
    values = {
        "{resume}": "ditbench submit {run}",
        "{run}": shlex.quote(_short(run.path)),
        "{study}": shlex.quote(_short(run.path.parent.parent)),
        "{logs}": shlex.quote(_short(run.path.parent)),
        "{output}": shlex.quote(_short(output)) if output else f"sacct -j {job}",
        "{nodes}": start.nodes if start and start.nodes else "NODE",
        "{limit}": f"the job's time limit was {'near' if state.is_paused else 'over'}",
        "{who}": launcher if is_ours else "a user",
        "{first_failure}": f": {diagnosis.first_failure}" if diagnosis.first_failure else "",
        "{saved}": saved,
    }
    for placeholder, value in values.items():
        words = words.replace(placeholder, value)
    return words


def _short(path: Path) -> str:
    """Return a path relative to the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
