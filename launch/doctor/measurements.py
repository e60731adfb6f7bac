"""Measure how a cluster behaves, from Slurm's configuration and by probe jobs."""

from dataclasses import dataclass

from launch.doctor.probe_jobs import UMASK, ProbeJobs
from launch.slurm import client
from launch.slurm.client import parse_time, shown_field
from launch.slurm.version import changes
from runs.state.slurm_job import ENDED

# The limit in limit.sh. With a shorter one the warning comes late: Slurm checks every 30 s.
_LIMIT_S = 120
HOST = "host name of a node"
NODE_CHECK = "from configs.checks.compute_node import *; check_driver(); check_compiler()"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A property of the cluster, its value, and what it means for a run."""

    name: str
    value: str
    means: str = ""


def slurm_config(partition: str) -> list[Measurement]:
    """Read Slurm's own configuration."""
    config = client.show("config")
    shown = client.show("partition", partition, "-o")
    requeue = {"0": "no", "1": "yes"}.get(shown_field(config, "JobRequeue"), "?")
    mode = shown_field(shown, "PreemptMode") or "?"
    return [
        *_version(config),
        Measurement(
            name="KillWait",
            value=f"{shown_field(config, 'KillWait') or '?'} s",
            means="from TERM to KILL",
        ),
        Measurement(
            name=f"GraceTime of {partition}",
            value=f"{shown_field(shown, 'GraceTime') or '?'} s",
            means="from the warning of a preemption to its TERM",
        ),
        Measurement(
            name=f"preemption in {partition}",
            value="no" if mode == "OFF" else mode,
            means="" if mode == "OFF" else "other jobs may preempt jobs",
        ),
        Measurement(
            name="requeue by default",
            value=requeue,
            means="" if requeue == "yes" else "jobs must request it: --requeue",
        ),
        Measurement(
            name="maximum tasks of an array", value=shown_field(config, "MaxArraySize") or "?"
        ),
    ]


def _version(config: str) -> list[Measurement]:
    """Return the version, and a row for each of its changes that concerns this site."""
    version = shown_field(config, "SLURM_VERSION")
    if version is None:
        return [Measurement(name="Slurm", value="?")]
    notes = [
        Measurement(name=f"Slurm {version}", value="note", means=text)
        for text in changes(version, config)
    ]
    return [Measurement(name="Slurm", value=version), *notes]


def node(probes: ProbeJobs) -> list[Measurement]:
    """Measure properties of a node and which processes receive a signal of scancel."""
    if not probes.wait("node", lambda: len(probes.values("node", "ready")) == 2):
        return [Measurement(name="node", value="not measured")]
    job = probes.jobs["node"]
    client.send_signal(job, "USR1")
    probes.wait("node", lambda: "USR1" in probes.values("node", "heard-step"))
    client.send_signal(job, "USR2", batch_only=True)
    probes.wait("node", lambda: "USR2" in probes.values("node", "heard-batch"))
    has_accounting = client.has_accounting(job)
    (probes.folder / "enough").touch()
    umask = " ".join(probes.values("node", "umask"))
    commands = probes.values("node", "command")
    lacks = (probes.folder / "node.lacks").read_text(encoding="utf-8").strip()
    own, step = (probes.values("node", f"cpus-of-{what}") for what in ("job", "step"))
    return [
        Measurement(name=HOST, value=" ".join(probes.values("node", "host")) or "?"),
        Measurement(
            name="umask on nodes",
            value="that of sbatch" if umask == UMASK else umask,
            means="for files that a job creates; ours set their own",
        ),
        Measurement(
            name="commands on nodes",
            value=" ".join(commands) or "none",
            means="" if probes.values("node", "asks") else "scontrol fails on nodes: no requeue",
        ),
        Measurement(name="driver and compiler", value="not good" if lacks else "good", means=lacks),
        Measurement(
            name="sacct",
            value="yes" if has_accounting else "no",
            means="" if has_accounting else "only squeue knows about jobs",
        ),
        Measurement(
            name="cpus-per-task in steps",
            value="inherited" if own == step else "not inherited",
            means="" if own == step else "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        ),
        Measurement(name="scancel -s SIGNAL", value=_receivers(probes, "USR1")),
        Measurement(name="scancel -b -s SIGNAL", value=_receivers(probes, "USR2")),
    ]


def _receivers(probes: ProbeJobs, signal: str) -> str:
    return _received_by(
        [who for who in ("batch", "step") if signal in probes.values("node", f"heard-{who}")]
    )


def _received_by(processes: list[str]) -> str:
    return f"received by {' and '.join(processes) or 'no process'}"


def requeue(probes: ProbeJobs) -> list[Measurement]:
    """Measure whether a job may requeue itself, its hold, and whether its owner can end that."""
    job = probes.jobs["requeue"]

    def is_settled() -> bool:
        facts = probes.facts("requeue")
        return ["refused"] in facts or (["asked"] in [f[:1] for f in facts] and _is_pending(job))

    if not probes.wait("requeue", is_settled):
        return [Measurement(name="requeue", value="not measured")]
    if ["refused"] in probes.facts("requeue"):
        error = " ".join((probes.folder / "requeue.error").read_text(encoding="utf-8").split())
        means = f"resubmit to continue; {error}"
        return [Measurement(name="requeue", value="refused", means=means)]
    asked = float(probes.facts("requeue")[1][2])
    eligible = parse_time(shown_field(client.show("job", job, "-o"), "EligibleTime"))
    held = max(0.0, (eligible or asked) - asked)
    # Not at once: Slurm kills a start in the second in which the last credential is revoked.
    shortened = client.begin_in(job, 2)
    return [
        Measurement(
            name="requeue", value="allowed", means="a run continues by itself after its limit"
        ),
        Measurement(name="hold of a requeued job", value=f"{held:.0f} s"),
        Measurement(name="hold ended by its owner", value="allowed" if shortened else "refused"),
    ]


def _is_pending(job: str) -> bool:
    known = client.query_jobs([job]).get(job)
    return known is not None and known.state == "PENDING"


def limit(probes: ProbeJobs) -> list[Measurement]:
    """Measure when the warning of the time limit comes, who receives it, and TERM and KILL."""
    done = probes.wait("limit", lambda: probes.state("limit") in ENDED)
    times = {words[0]: float(words[1]) for words in reversed(probes.facts("limit"))}
    if not done or "start" not in times:
        return [Measurement(name="time limit", value="not measured")]
    end = times["start"] + _LIMIT_S
    warned = [who for who in ("batch", "step") if f"{who}-USR1" in times]
    ended = [who for who in ("batch", "step") if f"{who}-TERM" in times]
    warning = times.get("batch-USR1")
    term = min((times[f"{who}-TERM"] for who in ended), default=None)
    return [
        Measurement(
            name="--signal=B:USR1@40",
            value=f"{end - warning:.0f} s before the limit" if warning else "never came",
            means=_received_by(warned),
        ),
        Measurement(
            name="TERM at the limit",
            value=f"{term - end:+.0f} s after it" if term else "never came",
            means=_received_by(ended),
        ),
        Measurement(name="KILL after TERM", value=_kill_delay(probes, term)),
    ]


def _kill_delay(probes: ProbeJobs, term: float | None) -> str:
    """Return the time from TERM to the last beat of the step, which only KILL can end."""
    try:
        beat = float((probes.folder / "step.beat").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "not measured"
    return f"{beat - term:.0f} s" if term else "not measured"
