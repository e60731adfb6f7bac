"""Rules about the rendezvous: how the processes of a job find each other."""

import re
from collections.abc import Iterator

from launch.lint.commands import AGENT, in_background
from launch.lint.rule import rule
from launch.lint.script import Script

_PORT = re.compile(
    r"MASTER_PORT=[\"']?(?:\$\{\w+:-)?\d|--(?:main[-_]process|master)[-_]port[= ]\d"
    r"|--rdzv[-_]endpoint[= ]\S*:[\"']?\d|--(?:init[-_]method|dist[-_]url)[= ]\S*:\d+"
)
_ID = re.compile(r"--rdzv[-_]id[= ]([\"']?\S+)")


@rule(
    "fixed port: a second job on the node joins this job's store or fails",
    fix="port=$((20000 + $(printf %s \"$SLURM_JOB_ID $RUN\" | cksum | cut -d' ' -f1) % 12000)), "
    "or torchrun --standalone on one node",
)
def fixed_port(script: Script) -> Iterator[int]:
    """A port that every job shares."""
    if script.directive("exclusive") and len(script.find(AGENT)) < 2:
        return
    yield from (line.number for line in script.lines if _PORT.search(line.text))


@rule(
    "fixed rendezvous id: two jobs at one store count as one and wait for each other",
    fix='--rdzv-id="$SLURM_JOB_ID-$RUN", and a port that differs too',
)
def fixed_rdzv_id(script: Script) -> Iterator[int]:
    """A rendezvous id that every job shares."""
    for line in script.lines:
        found = _ID.search(line.text)
        if found and "$" not in found[1]:
            yield line.number


@rule(
    "several runs share this job and derive their rendezvous id from the job id alone: they join "
    "each other",
    fix='--rdzv-id="$SLURM_JOB_ID-$RUN", and the port from a hash of the same',
)
def job_id_alone(script: Script) -> Iterator[int]:
    """Concurrent torchruns with only the job id in their rendezvous id."""
    agents = script.find(AGENT)
    loops = script.find(r"^(for|while)\b")
    at_once = [line for line in agents if in_background(line)]
    if len(at_once) > 1 or (at_once and loops):
        for line in agents:
            found = _ID.search(line.text)
            if found and re.fullmatch(r"[\"']?\$\{?SLURM_JOB_?ID\}?[\"']?", found[1]):
                yield line.number


@rule(
    "if the head address is not found, every node takes itself for the head: the world splits",
    fix='exit instead: [[ -n $head ]] || { echo "no head address" >&2; exit 1; }',
)
def localhost_fallback(script: Script) -> Iterator[int]:
    """localhost as the fallback for the head address."""
    local = r"[\"']?(localhost|127\.0\.0\.1)"
    several = (script.count("nodes") or 1) > 1 or bool(
        script.find(r"\bSLURM_(JOB_)?(NUM_NODES|NNODES)")
    )
    for line in script.lines:
        default = line.has(r"(MASTER_ADDR|head|HEAD)\w*[\"']?[^;]*:[-=]" + local)
        if line.has(r"\|\|\s*(echo\s+|\w+=)" + local) or (several and default):
            yield line.number


@rule(
    "--node-rank has no effect with c10d, which assigns ranks in order of arrival",
    fix="remove it; let rank 0 print its node",
)
def node_rank(script: Script) -> Iterator[int]:
    """--node-rank with a c10d rendezvous.

    Measured with two agents whose node ranks were swapped; not reproduced in the tests.
    """
    for line in script.find(r"--node[-_]rank"):
        if line.has(AGENT) and script.find(r"c10d|--rdzv[-_](id|endpoint)"):
            yield line.number
