"""`ditbench why`: a line per attempt, and the whole diagnosis of the newest."""

import re
import shlex
import sys
from collections import Counter, defaultdict
from pathlib import Path

from configs.errors import ConfigError
from configs.run.folder import ROOT, RunFolder, is_run
from configs.run.study_folder import StudyFolder, is_study_folder
from configs.table import json_text
from configs.terminal import printable
from launch.status.state import RunStatus, overview
from launch.submit.site import site_logs
from launch.why.causes import Diagnosis, diagnose
from launch.why.evidence import evidence_of_attempts, evidence_of_job
from launch.why.text import text, title, to_json

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
