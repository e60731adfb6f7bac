"""Find the root cause: it comes before the failures that follow from it (causes.yaml)."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from configs.load import read_tree
from configs.run.failures import failures
from configs.schema.key import KeyGroup
from launch.why import symptoms
from launch.why.evidence import Evidence
from launch.why.first_failure import first_failure
from launch.why.symptoms import Symptom

# The file, the rank and the kind of error in front of a message.
_SOURCE = re.compile(
    r"^.*?: (?:\[[^\]]*\]: ?|rank \d+: |failed [^:]*: |[\w.]+(?:Error|Exception): )*"
)


class Cause(KeyGroup):
    """The words of one cause, as causes.yaml describes them.

    They may contain {resume} (the command that continues the run), {run}, {logs}, {output} (the
    file to read), {nodes}, {check} (the command that checks the config), {limit}, {who},
    {first_failure} (the rank that failed first) and {saved} (the step of the last save).
    """

    name: str
    reason: str | None = None
    what: str = ""
    advice: str
    general: str = "see {output}, then submit it again"


# The evidence of each cause; that for later ones may be the cascade of the first.
SYMPTOMS: dict[str, Symptom] = {
    "done": symptoms.recorded_event("done"),
    "skipped": symptoms.recorded_event("skipped"),
    "launch failure": symptoms.launch_failure,
    "folder gone": symptoms.folder_gone,
    "completed": symptoms.completed(with_exception=False),
    "exception, but exit code 0": symptoms.completed(with_exception=True),
    "config": symptoms.recorded_reason("config"),
    "cuda oom": symptoms.reason_or_output("oom"),
    "host oom": symptoms.host_oom,
    "disk": symptoms.reason_or_output("disk"),
    "gpu fault": symptoms.reason_or_output("node"),
    "nan": symptoms.recorded_reason("nan"),
    "gradients": symptoms.recorded_reason("gradients"),
    "data": symptoms.reason_or_output("data"),
    "port clash": symptoms.reason_or_output("port", symptoms.PORT),
    "node failure": symptoms.node_failure,
    "time limit": symptoms.time_limit,
    "preemption": symptoms.preemption,
    "requeue": symptoms.requeue,
    "scancel": symptoms.scancel,
    "stop file": symptoms.stop_file,
    "asked to pause": symptoms.pause,
    "killed": symptoms.killed,
    "no progress": symptoms.no_progress,
    "hang": symptoms.hang,
    "nccl": symptoms.reason_or_output("nccl"),
    "exit 0 without done": symptoms.silent_success,
    "crash": symptoms.crash,
}


@cache
def causes() -> dict[str, Cause]:
    """Return the causes by name, roots first."""
    tree = read_tree(Path(__file__).with_name("causes.yaml"))
    found = {name: Cause(name=name, **words) for name, words in tree.items()}
    assert list(found) == list(SYMPTOMS)
    for name, cause in found.items():
        if not cause.what:
            what = failures()[str(cause.reason)].meaning + "{first_failure}"
            found[name] = cause.model_copy(update={"what": what})
    return found


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The cause of an attempt's end, if known, the lines that show it, and the rank at fault."""

    evidence: Evidence
    cause: Cause | None
    lines: list[str]
    first_failure: str = ""


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return the root cause of an attempt's end."""
    if evidence.start is None or not evidence.has_not_ended:
        for cause in causes().values():
            lines = SYMPTOMS[cause.name](evidence)
            if lines:
                if evidence.folder and any(evidence.folder.glob("ranks/nccl-*")):
                    lines += [f"collectives: torchfrtrace {evidence.folder}/ranks -p nccl-"]
                rank = first_failure(evidence, cause.name, cause.reason)
                shown = _without_repeats(evidence, lines)
                return Diagnosis(evidence=evidence, cause=cause, lines=shown, first_failure=rank)
    lines = [*evidence.recorded(), *evidence.by_slurm()]
    return Diagnosis(evidence=evidence, cause=None, lines=_without_repeats(evidence, lines))


def _without_repeats(evidence: Evidence, lines: list[str]) -> list[str]:
    """Return the lines, with paths from the run, LOGS or this folder, that say something new."""
    kept: list[str] = []
    own = (evidence.run.path, evidence.run.path.parent) if evidence.run else ()
    for line in lines:
        for folder in (*own, Path.cwd()):
            line = line.removeprefix(f"{folder}/")
        said = _SOURCE.sub("", line)[:80]
        if not any(said in other for other in kept):
            kept.append(line)
    return kept
