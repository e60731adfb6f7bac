"""Measure how a cluster behaves: the version of its Slurm, and a node by a job that looks at it."""

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from launch.lint.lint import changes
from launch.slurm import client
from launch.slurm.client import shown_field
from runs.folder import ROOT
from runs.state.slurm_job import SlurmJob

_SCRIPT = Path(__file__).with_name("probe.sh")
_NODE_CHECK = "from configs.checks.compute_node import *; check_driver(); check_compiler()"
HOST = "host name of a node"
POLL_S, _PATIENCE_S = 0.5, 1800.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A property of the cluster, its value, and what it means for a run."""

    name: str
    value: str
    means: str = ""


def slurm_version() -> list[Measurement]:
    """Return the version of Slurm, and a row for each of its changes that concerns this site."""
    config = client.show("config")
    version = shown_field(config, "SLURM_VERSION")
    if not version:
        return [Measurement(name="Slurm", value="?")]
    notes = [
        Measurement(name=f"Slurm {version}", value="note", means=text)
        for text in changes(version, config)
    ]
    return [Measurement(name="Slurm", value=version), *notes]


def probe(folder: Path, flags: list[str], *, container: str = "") -> list[Measurement]:
    """Measure a node by a job with these flags, which writes into a folder that nodes share."""
    check = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", _NODE_CHECK]
    if container:
        mount = f'type=bind,"source={ROOT}","destination={ROOT}"'
        inside = ["apptainer", "--silent", "exec", "--nv", "--mount", mount, container]
        check = [*inside, *check[:2], "python", "-c", _NODE_CHECK]
    (folder / "check").write_text(shlex.join(check), encoding="utf-8")
    script = _SCRIPT.read_text(encoding="utf-8")
    job = client.submit_text(script, f"--chdir={folder}", *flags)
    print(f"job {job} looks at a node", file=sys.stderr, flush=True)
    try:
        return node(_wait(folder, job))
    finally:
        client.cancel(job)


def _wait(folder: Path, job: str) -> dict[str, str]:
    """Return the facts once the job has asked for its requeue, or ended."""
    began = time.monotonic()
    while True:
        # Asked before the facts are read: they are complete if the job has ended.
        now = client.query_jobs([job]).get(job, SlurmJob(state="COMPLETED"))
        facts = read_facts(folder / "facts")
        is_settled = "refused" in facts or ("asked" in facts and now.is_waiting)
        if is_settled or now.has_ended or time.monotonic() - began > _PATIENCE_S:
            return facts
        time.sleep(POLL_S)


def read_facts(file: Path) -> dict[str, str]:
    """Return what the job has written so far."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    pairs = (line.partition(" ") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def node(facts: dict[str, str]) -> list[Measurement]:
    """Return the properties of a node, and whether a job may requeue itself."""
    if "asked" not in facts:
        return [Measurement(name="node", value="not measured", means="its job did not get there")]
    lacks, refusal = facts.get("lacks", ""), facts.get("refused")
    resubmit = f"resubmit to continue; {refusal}"
    return [
        Measurement(name=HOST, value=facts.get("host") or "?"),
        Measurement(name="driver and compiler", value="not good" if lacks else "good", means=lacks),
        Measurement(
            name="requeue",
            value="allowed" if refusal is None else "refused",
            means="a run continues by itself after its limit" if refusal is None else resubmit,
        ),
    ]
