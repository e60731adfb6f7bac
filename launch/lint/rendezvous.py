"""Rules about how the processes of a job find one another."""

import re
from collections.abc import Iterator

from launch.lint.commands import AGENT, in_background
from launch.lint.lint import rule
from launch.lint.script import Script

_PORT = re.compile(
    r"MASTER_PORT=[\"']?(?:\$\{\w+:-)?\d|--(?:main[-_]process|master)[-_]port[= ]\d"
    r"|--rdzv[-_]endpoint[= ]\S*:[\"']?\d|--(?:init[-_]method|dist[-_]url)[= ]\S*:\d+"
)
_ID = re.compile(r"--rdzv[-_]id[= ]([\"']?\S+)")


@rule(
    "a fixed port: a second job on the node joins this one's store, or dies of it",
    mend="port=$((20000 + $(printf %s \"$SLURM_JOB_ID $RUN\" | cksum | cut -d' ' -f1) % 12000)), "
    "or torchrun --standalone on one node",
)
def fixed_port(script: Script) -> Iterator[int]:
    """A port that is the same in every job."""
    if script.asks("exclusive") and len(script.find(AGENT)) < 2:
        return
    yield from (line.number for line in script.lines if _PORT.search(line.text))


@rule(
    "a fixed rendezvous id: two jobs at one store are taken for one, and wait for each other",
    mend='--rdzv-id="$SLURM_JOB_ID-$RUN", with a port that differs too',
)
def fixed_rdzv_id(script: Script) -> Iterator[int]:
    """A rendezvous id that is the same in every job."""
    for line in script.lines:
        found = _ID.search(line.text)
        if found and "$" not in found[1]:
            yield line.number


@rule(
    "several runs share this job, and their rendezvous id comes from the job's id alone: they join "
    "one another",
    mend='--rdzv-id="$SLURM_JOB_ID-$RUN", and the port from a hash of the same',
)
def job_id_alone(script: Script) -> Iterator[int]:
    """Several torchruns at once, told apart by nothing but the job's id."""
    agents = script.find(AGENT)
    loops = script.find(r"^(for|while)\b")
    at_once = [line for line in agents if in_background(line)]
    if len(at_once) > 1 or (at_once and loops):
        for line in agents:
            found = _ID.search(line.text)
            if found and re.fullmatch(r"[\"']?\$\{?SLURM_JOB_?ID\}?[\"']?", found[1]):
                yield line.number


@rule(
    "where the head's address is not found every node takes itself for the head: the world splits",
    mend='end there: [[ -n $head ]] || { echo "no head address" >&2; exit 1; }',
)
def localhost_fallback(script: Script) -> Iterator[int]:
    """localhost in place of an address that was not found."""
    local = r"[\"']?(localhost|127\.0\.0\.1)"
    several = (script.count("nodes") or 1) > 1 or bool(
        script.find(r"\bSLURM_(JOB_)?(NUM_NODES|NNODES)")
    )
    for line in script.lines:
        default = line.has(r"(MASTER_ADDR|head|HEAD)\w*[\"']?[^;]*:[-=]" + local)
        if line.has(r"\|\|\s*(echo\s+|\w+=)" + local) or (several and default):
            yield line.number


@rule(
    "--node-rank does nothing under c10d, which hands out ranks as nodes arrive",
    mend="remove it; let rank 0 say which node it is on",
)
def node_rank(script: Script) -> Iterator[int]:
    """--node-rank beside a c10d rendezvous.

    Measured with two agents whose node ranks were swapped; not reproduced here.
    """
    for line in script.find(r"--node[-_]rank"):
        if line.has(AGENT) and script.find(r"c10d|--rdzv[-_](id|endpoint)"):
            yield line.number


RULES = (fixed_port, fixed_rdzv_id, job_id_alone, localhost_fallback, node_rank)
