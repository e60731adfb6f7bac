"""What is asked of a cluster: by its own configuration, and by jobs that try it."""

import re
import time
from dataclasses import dataclass

from launch.doctor.probe_jobs import UMASK, ProbeJobs, shown_field
from launch.slurm import client

# As limit.sh asks. A shorter one would be warned of late: Slurm looks every 30 s.
_LIMIT_S = 120


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One answer, and what it means for a run; no value where it could not be measured."""

    name: str
    value: str
    means: str = ""


def configured(partition: str) -> list[Measurement]:
    """What Slurm says of itself."""
    config = client.run("scontrol", "show", "config").stdout
    shown = client.run("scontrol", "show", "partition", partition, "-o").stdout

    def says(name: str, text: str) -> str:
        found = re.search(rf"(?:^|\s){name}\s*=\s*(\S+)", text, re.MULTILINE)
        return found[1] if found else "?"

    by_default = {"0": "no", "1": "yes"}.get(says("JobRequeue", config), "?")
    mode = says("PreemptMode", shown)
    return [
        Measurement(name="Slurm", value=says("SLURM_VERSION", config)),
        Measurement(
            name="KillWait",
            value=f"{says('KillWait', config)} s",
            means="from TERM to KILL",
        ),
        Measurement(
            name=f"GraceTime of {partition}",
            value=f"{says('GraceTime', shown)} s",
            means="from the warning of a preemption to its TERM",
        ),
        Measurement(
            name=f"preemption in {partition}",
            value="no" if mode == "OFF" else mode,
            means="" if mode == "OFF" else "jobs may have to make way for others",
        ),
        Measurement(
            name="requeue by default",
            value=by_default,
            means="" if by_default == "yes" else "jobs must ask for it: --requeue",
        ),
        Measurement(name="most tasks of an array", value=says("MaxArraySize", config)),
    ]


def place(bench: ProbeJobs) -> list[Measurement]:
    """What a node is like, and who hears which signal of scancel."""
    if not bench.wait("place", lambda: len(bench.values("place", "ready")) == 2):
        return [Measurement(name="node", value="not measured")]
    job = bench.jobs["place"]
    client.run("scancel", "--signal=USR1", job)
    bench.wait("place", lambda: "USR1" in bench.values("place", "heard-step"))
    client.run("scancel", "--batch", "--signal=USR2", job)
    bench.wait("place", lambda: "USR2" in bench.values("place", "heard-batch"))
    accounted = client.run("sacct", "-n", "-X", f"--jobs={job}", "--format=State")
    (bench.folder / "enough").touch()
    umask = " ".join(bench.values("place", "umask"))
    there = bench.values("place", "command")
    own, step = (bench.values("place", f"cpus-of-{what}") for what in ("job", "step"))
    inherits = own == step
    return [
        Measurement(
            name="umask on nodes",
            value="that of sbatch" if umask == UMASK else umask,
            means="of files that a job makes; ours set their own",
        ),
        Measurement(
            name="commands on nodes",
            value=" ".join(there) or "none",
            means="" if bench.values("place", "asks") else "nodes cannot ask scontrol: no requeue",
        ),
        Measurement(
            name="sacct",
            value="yes" if accounted.returncode == 0 else "no",
            means="" if accounted.returncode == 0 else "the queue alone tells of jobs",
        ),
        Measurement(
            name="cpus-per-task in steps",
            value="inherited" if inherits else "not inherited",
            means="" if inherits else "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        ),
        Measurement(name="scancel -s SIGNAL", value=_who(bench, "USR1")),
        Measurement(name="scancel -b -s SIGNAL", value=_who(bench, "USR2")),
    ]


def _who(bench: ProbeJobs, signal: str) -> str:
    heard = [who for who in ("batch", "step") if signal in bench.values("place", f"heard-{who}")]
    return f"heard by {' and '.join(heard) or 'nobody'}"


def requeue(bench: ProbeJobs) -> list[Measurement]:
    """Whether a job may requeue itself, how long it is held, and whether the owner may end that."""
    job = bench.jobs["requeue"]

    def is_settled() -> bool:
        facts = bench.facts("requeue")
        return ["refused"] in facts or (["asked"] in [f[:1] for f in facts] and _held(job))

    if not bench.wait("requeue", is_settled):
        return [Measurement(name="requeue", value="not measured")]
    if ["refused"] in bench.facts("requeue"):
        said = " ".join((bench.folder / "requeue.error").read_text(encoding="utf-8").split())
        return [Measurement(name="requeue", value="refused", means=f"resubmit to go on; {said}")]
    asked = float(bench.facts("requeue")[1][2])
    held = max(0.0, (_time(shown_field(job, "EligibleTime")) or asked) - asked)
    answers = [
        Measurement(
            name="requeue", value="allowed", means="a run goes on by itself after its limit"
        ),
        Measurement(name="hold of a requeued job", value=f"{held:.0f} s"),
    ]
    # Not now: a start in the second in which the last one's credential ended is taken for that.
    update = client.run("scontrol", "update", f"jobid={job}", "StartTime=now+2")
    shortened = update.returncode == 0
    return [
        *answers,
        Measurement(name="hold ended by its owner", value="allowed" if shortened else "refused"),
    ]


def _held(job: str) -> bool:
    known = client.jobs([job]).get(job)
    return known is not None and known.state == "PENDING"


def limit(bench: ProbeJobs) -> list[Measurement]:
    """When the warning of the time limit comes, to whom, and what follows at the limit."""
    done = bench.wait("limit", lambda: bench.state("limit") in client.ENDED)
    heard = {words[0]: float(words[1]) for words in reversed(bench.facts("limit"))}
    if not done or "start" not in heard:
        return [Measurement(name="time limit", value="not measured")]
    end = heard["start"] + _LIMIT_S
    who = [w for w in ("batch", "step") if f"{w}-USR1" in heard]
    terms = [heard[f"{w}-TERM"] for w in ("batch", "step") if f"{w}-TERM" in heard]
    warned = heard.get("batch-USR1")
    return [
        Measurement(
            name="--signal=B:USR1@40",
            value=f"{end - warned:.0f} s before the limit" if warned else "never came",
            means=f"heard by {' and '.join(who) or 'nobody'}",
        ),
        Measurement(
            name="TERM at the limit",
            value=f"{min(terms) - end:+.0f} s after it" if terms else "never came",
            means="heard by "
            + (" and ".join(w for w in ("batch", "step") if f"{w}-TERM" in heard) or "nobody"),
        ),
        Measurement(
            name="KILL after TERM",
            value=_killed(bench, min(terms)) if terms else "not measured",
        ),
    ]


def _killed(bench: ProbeJobs, term: float) -> str:
    """By the last beat of the step, which has no reason of its own to end."""
    try:
        return f"{float((bench.folder / 'step.beat').read_text(encoding='utf-8')) - term:.0f} s"
    except (OSError, ValueError):
        return "not measured"


def _time(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
