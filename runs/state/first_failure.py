"""Find the rank that failed first, and tell it from those that only lost their peer."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from configs.disk import read_end
from runs.state.evidence import Evidence
from runs.state.reasons import Reason, failures

# The head of one rank in torchrun's report. The rank that it calls the root cause may have lost a
# peer that was killed within the same second.
_RANK = re.compile(r"^\s*\[\d+\]:\s*$")


def first_failure(evidence: Evidence, reason: Reason) -> str:
    """Return the rank, such as "rank 3 on node-2"; empty if it is unknown, or no rank failed."""
    noted = evidence.note.get("reason")
    if reason.name == "killed":
        return _killed(evidence)
    if reason.name == "hang" and noted == "hang":
        return _first_note(evidence)
    if reason.name in ("hang", "nccl"):
        return _killed(evidence) or _furthest_behind(evidence) or _first_note(evidence)
    if reason.name in ("nan", "crash"):
        return _first_note(evidence)
    if reason.name not in failures() or reason.name == "config":
        return ""
    return _first_note(evidence) if noted == reason.name else _rank_with(evidence, reason.pattern)


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
    """Return the rank that was killed first, according to the agents."""
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
