"""The table of causes: a root cause comes before the failures that follow from it."""

from dataclasses import dataclass

from configs.run.failures import FAILURES
from launch.why import symptoms
from launch.why.evidence import Evidence
from launch.why.first_failure import first_failure
from launch.why.symptoms import Symptom


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause: its explanation, the advice, and the function that finds its evidence.

    `what` and `advice` may contain the placeholders {run}, {logs}, {attempt}, {nodes},
    {first_failure} (the rank that failed first) and {saved} (the step of the last save).
    """

    name: str
    what: str
    advice: str
    find: Symptom


RESUME = "python -m launch submit {run}"

# The first cause with evidence is the root; evidence for later ones may be its cascade.
CAUSES = (
    Cause(
        name="done",
        what="the run is done",
        advice=f"to continue: {RESUME} train.steps=MORE",
        find=symptoms.recorded_event("done"),
    ),
    Cause(
        name="skipped",
        what="a cell that needs at most as much memory ran out of it, so this one was not tried",
        advice="less memory: train.micro_batch, activation_checkpointing.mode, layout.shard",
        find=symptoms.recorded_event("skipped"),
    ),
    Cause(
        name="launch failure",
        what="Slurm could not start the job, usually because the folder of its output is missing "
        "or not writable on the node",
        advice="create the folder of --output (mkdir -p logs), then submit again",
        find=symptoms.launch_failure,
    ),
    Cause(
        name="config",
        what=FAILURES["config"].meaning,
        advice="fix the error in the message, check with python -m launch preflight CONFIG, "
        "then submit again",
        find=symptoms.recorded_reason("config"),
    ),
    Cause(
        name="cuda oom",
        what=FAILURES["oom"].meaning + "{first_failure}",
        advice=f"{RESUME} train.micro_batch=auto   (python -m train forecast shows what fits)",
        find=symptoms.cuda_oom,
    ),
    Cause(
        name="host oom",
        what=FAILURES["host_oom"].meaning + "{first_failure}",
        advice=f"{RESUME} resources.memory_gb=MORE   (or data.workers=FEWER in a new run)",
        find=symptoms.host_oom,
    ),
    Cause(
        name="disk",
        what=FAILURES["disk"].meaning + "{first_failure}",
        advice="df -h {logs}; du -sh {logs}/*; free some space, then " + RESUME,
        find=symptoms.disk,
    ),
    Cause(
        name="gpu fault",
        what="a GPU failed{first_failure}",
        advice="tell the site's support, and avoid the node: " + RESUME + " -- --exclude={nodes}",
        find=symptoms.gpu_fault,
    ),
    Cause(
        name="nan",
        what=FAILURES["nan"].meaning + "{first_failure}",
        advice="python -m analysis loss {run}; then a new run with a lower optimizer.lr, a longer "
        "optimizer.warmup_steps or train.precision=fp32",
        find=symptoms.recorded_reason("nan"),
    ),
    Cause(
        name="data",
        what=FAILURES["data"].meaning + "{first_failure}",
        advice="python -m train doctor PATH_OF_THE_DATA; then " + RESUME,
        find=symptoms.data,
    ),
    Cause(
        name="port clash",
        what="the port for the rendezvous was taken",
        advice=f"{RESUME}   (another attempt takes another port)",
        find=symptoms.port_clash,
    ),
    Cause(
        name="node failure",
        what="Slurm lost a node of the job",
        advice=f"{RESUME} -- --exclude={{nodes}}   (unless Slurm has requeued it)",
        find=symptoms.node_failure,
    ),
    Cause(
        name="time limit",
        what="the job reached its time limit{saved}",
        advice=f"{RESUME}   (it continues from the last save; resources.hours=MORE for longer)",
        find=symptoms.time_limit,
    ),
    Cause(
        name="preemption",
        what="the job was preempted by another{saved}",
        advice=f"{RESUME}   (unless Slurm has requeued it)",
        find=symptoms.preemption,
    ),
    Cause(
        name="requeue",
        what="the job was requeued{saved}",
        advice="python -m launch tail {run}",
        find=symptoms.requeue,
    ),
    Cause(
        name="scancel",
        what="a user cancelled the job{saved}",
        advice=RESUME,
        find=symptoms.scancel,
    ),
    Cause(
        name="stop file",
        what="the run was stopped by its file STOP or by Ctrl-C{saved}",
        advice=RESUME,
        find=symptoms.stop_file,
    ),
    Cause(
        name="asked to pause",
        what="a user or Slurm sent the signal to save and pause{saved}",
        advice=RESUME,
        find=symptoms.pause,
    ),
    Cause(
        name="killed",
        what="a signal killed a process{first_failure}: from the kernel for its memory, from an "
        "administrator, or from a crash in native code",
        advice="ssh {nodes} dmesg | tail, or ask the site; then " + RESUME,
        find=symptoms.killed,
    ),
    Cause(
        name="no progress",
        what="several attempts in a row saved nothing new, so the run was not requeued",
        advice="see the cause of each attempt above, then " + RESUME,
        find=symptoms.no_progress,
    ),
    Cause(
        name="hang",
        what=FAILURES["hang"].meaning + "{first_failure}",
        advice="tail {attempt}/ranks/*; then " + RESUME,
        find=symptoms.hang,
    ),
    Cause(
        name="nccl",
        what=FAILURES["nccl"].meaning + "{first_failure}",
        advice="cat {attempt}/output.log; then " + RESUME,
        find=symptoms.lost_peers,
    ),
    Cause(
        name="exit 0 without done",
        what="the ranks exited with 0 without recording that the run is done",
        advice="cat {attempt}/output.log; then " + RESUME,
        find=symptoms.silent_success,
    ),
    Cause(
        name="crash",
        what=FAILURES["crash"].meaning + "{first_failure}",
        advice="cat {attempt}/error.json; fix the error, then " + RESUME,
        find=symptoms.crash,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The cause of an attempt's end, if known, the lines that show it, and the rank at fault."""

    evidence: Evidence
    cause: Cause | None
    lines: list[str]
    first_failure: str = ""


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return the root cause of an attempt's end."""
    for cause in CAUSES:
        lines = cause.find(evidence)
        if lines:
            rank = first_failure(evidence, cause.name)
            return Diagnosis(evidence=evidence, cause=cause, lines=lines, first_failure=rank)
    lines = [*evidence.recorded(), *evidence.by_slurm()]
    return Diagnosis(evidence=evidence, cause=None, lines=lines)
