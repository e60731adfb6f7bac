"""Find the rank that failed first, and tell it from those that only lost their peer."""

import re

from runs.state.evidence import Evidence
from runs.state.reasons import Reason, failures

# The head of one rank in torchrun's report. The rank that it calls the root cause may have lost a
# peer that was killed within the same second.
_RANK = re.compile(r"^\s*\[\d+\]:\s*$")


def first_failure(evidence: Evidence, reason: Reason) -> str:
    """Return the rank, such as "rank 3 on node-2"; empty if it is unknown, or no rank failed."""
    noted = evidence.note.get("reason")
    if reason.name not in failures() or reason.name == "config":
        return ""
    if reason.name in ("killed", "nccl") or (reason.name == "hang" and noted != "hang"):
        # A rank that noted that it lost a peer is a victim.
        return _killed(evidence)
    if reason.name in ("nan", "crash", noted):
        return _first_note(evidence)
    return _rank_with(evidence, reason.pattern)


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
