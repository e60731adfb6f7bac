"""The rank that a fault began with, told from those that only lost it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from configs.run.failures import FAILURES
from launch.why.evidence import Evidence

_ROOT = re.compile(r"Root Cause \(first observed failure\)")
# By cause: the reason that a rank notes.
_REASONS = {
    "cuda oom": "oom",
    "host oom": "host_oom",
    "disk": "disk",
    "gpu fault": "node",
    "data": "data",
}


def culprit(scene: Evidence, cause: str) -> str:
    """Such as "rank 3 on node-2"; empty where nothing tells it."""
    if cause == "killed":
        return _killed(scene)
    if cause == "hang" and scene.note.get("reason") == "hang":
        return _first_to_fail(scene)
    if cause in ("hang", "nccl"):
        return _killed(scene) or _latecomer(scene) or _first_to_fail(scene)
    if cause in ("nan", "crash"):
        return _first_to_fail(scene)
    if cause not in _REASONS:
        return ""
    reason = _REASONS[cause]
    if scene.note.get("reason") == reason:
        return _first_to_fail(scene)
    return _who_said(scene, FAILURES[reason].pattern)


def _who_said(scene: Evidence, pattern: str) -> str:
    """The rank whose own log holds the words."""
    for text in scene.texts:
        rank = re.fullmatch(r"rank-(\d+)\.log", text.path.name)
        if rank and any(text.find(pattern)):
            return f"rank {int(rank[1])}"
    return ""


def _first_to_fail(scene: Evidence) -> str:
    """The rank that left its note first."""
    if "rank" not in scene.note:
        return ""
    node = f" on {scene.note['node']}" if scene.note.get("node") else ""
    return f"rank {scene.note['rank']}{node}"


def _killed(scene: Evidence) -> str:
    """The rank that the agents saw killed first; see `signs.KILLED` for what is no killing."""
    found = []
    for text in scene.texts:
        for i, line in enumerate(text.lines):
            if _ROOT.search(line):
                found += _death("\n".join(text.lines[i : i + 8]))
    return min(found)[1] if found else ""


def _death(report: str) -> list[tuple[str, str]]:
    """When, and which rank died by which signal, as torchrun's report of the root has it."""
    fields = dict(re.findall(r"^\s*(time|host|rank|exitcode)\s*: (\S+)", report, re.MULTILINE))
    signal = fields.get("exitcode", "").removeprefix("-")
    if fields.get("exitcode") == signal or signal in ("6", "15") or "rank" not in fields:
        return []
    who = f"rank {fields['rank']} on {fields.get('host', 'a node')}, by signal {signal}"
    return [(fields.get("time", ""), who)]


def _latecomer(scene: Evidence) -> str:
    """The rank that came to fewer steps than the others."""
    if scene.folder is None:
        return ""
    steps = dict(_last_steps(scene.folder / "ranks"))
    if len(steps) < 2 or len(set(steps.values())) == 1:
        return ""
    last = min(steps, key=lambda rank: steps[rank])
    others = max(steps.values())
    return f"rank {last}, last seen at step {steps[last]} where others came to {others}"


def _last_steps(folder: Path) -> Iterator[tuple[int, int]]:
    for path in sorted(folder.glob("arrivals-*.jsonl")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in reversed(lines):
            try:
                yield int(path.stem.rpartition("-")[2]), int(json.loads(line)["step"])
            except (ValueError, KeyError, TypeError):
                continue
            break
