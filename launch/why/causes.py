"""Find the root cause, which comes before the failures that follow from it (causes.yaml).

The rank that failed first is told from those that only lost their peer.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from configs.disk import read_end
from configs.load import read_tree
from configs.schema.key import KeyGroup
from launch.why import symptoms
from launch.why.evidence import Evidence
from launch.why.symptoms import Symptom
from runs.failures import failures

# The file, the rank and the kind of error in front of a message.
_SOURCE = re.compile(
    r"^.*?: (?:\[[^\]]*\]: ?|rank \d+: |failed [^:]*: |[\w.]+(?:Error|Exception): )*"
)
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
    "end of a turn": symptoms.end_of_turn,
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
# The head of one rank in torchrun's report. The rank that it calls the root cause may have lost a
# peer that was killed within the same second.
_RANK = re.compile(r"^\s*\[\d+\]:\s*$")


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


def first_failure(evidence: Evidence, cause: str, reason: str | None) -> str:
    """Return the rank, such as "rank 3 on node-2"; empty if it is unknown, or no rank failed."""
    if cause == "killed":
        return _killed(evidence)
    if cause == "hang" and evidence.note.get("reason") == "hang":
        return _first_note(evidence)
    if cause in ("hang", "nccl"):
        return _killed(evidence) or _furthest_behind(evidence) or _first_note(evidence)
    if cause in ("nan", "crash"):
        return _first_note(evidence)
    if reason is None or cause == "config":
        return ""
    if evidence.note.get("reason") == reason:
        return _first_note(evidence)
    return _rank_with(evidence, failures()[reason].pattern)


def _rank_with(evidence: Evidence, pattern: str) -> str:
    """Return the rank whose own log matches a pattern."""
    for log in evidence.logs:
        rank = re.fullmatch(r"rank-(\d+)\.log", log.path.name)
        if rank and any(log.find(pattern)):
            return f"rank {int(rank[1])}"
    return ""


def _first_note(evidence: Evidence) -> str:
    """Return the rank that wrote its error note first."""
    if "rank" not in evidence.note:
        return ""
    node = f" on {evidence.note['node']}" if evidence.note.get("node") else ""
    return f"rank {evidence.note['rank']}{node}"


def _killed(evidence: Evidence) -> str:
    """Return the rank that was killed first, see `symptoms.KILLED`, according to the agents."""
    found = []
    for log in evidence.logs:
        for i, line in enumerate(log.lines):
            if _RANK.search(line):
                found += _death("\n".join(log.lines[i : i + 6]))
    return min(found)[1] if found else ""


def _death(report: str) -> list[tuple[str, str]]:
    """Return when and which rank died by which signal, from its part of torchrun's report."""
    fields = dict(re.findall(r"^\s*(time|host|rank|exitcode)\s*: (\S+)", report, re.MULTILINE))
    signal = fields.get("exitcode", "").removeprefix("-")
    if fields.get("exitcode") == signal or signal in ("6", "15") or "rank" not in fields:
        return []
    rank = f"rank {fields['rank']} on {fields.get('host', 'a node')}, by signal {signal}"
    return [(fields.get("time", ""), rank)]


def _furthest_behind(evidence: Evidence) -> str:
    """Return the rank that reached fewer steps than the others."""
    if evidence.folder is None:
        return ""
    steps = dict(_last_steps(evidence.folder / "ranks"))
    if len(steps) < 2 or len(set(steps.values())) == 1:
        return ""
    last = min(steps, key=lambda rank: steps[rank])
    return f"rank {last}, last seen at step {steps[last]}; others reached {max(steps.values())}"


def _last_steps(folder: Path) -> Iterator[tuple[int, int]]:
    for path in sorted(folder.glob("arrivals-*.jsonl")):
        for line in reversed(read_end(path).splitlines()):
            try:
                yield int(path.stem.rpartition("-")[2]), int(json.loads(line)["step"])
            except (ValueError, KeyError, TypeError):
                continue
            break
