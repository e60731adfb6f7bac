"""What ends runs, as a table: roots stand before what follows from them."""

from collections.abc import Callable
from dataclasses import dataclass

from configs.run.failures import FAILURES
from launch.why import first_failure, interruptions, symptoms
from launch.why.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause: how it is recognised (by the evidence that it leaves) and what to do next.

    `advice` may hold {run}, the run's folder; {job}; {culprit}, the rank that it began with.
    """

    name: str
    what: str
    advice: str
    find: Callable[[Evidence], list[str]]


RESUME = "python -m launch submit {run}"

# The first that leaves evidence is the root: what comes later may be its cascade.
CAUSES = (
    Cause(
        name="done",
        what="nothing ended it: it is done",
        advice=f"to go on: {RESUME} train.steps=MORE",
        find=symptoms.done,
    ),
    Cause(
        name="skipped",
        what="a cell that needs no more memory ran out of it, so this one was not tried",
        advice="less memory: train.micro_batch, activation_checkpointing.mode, layout.shard",
        find=symptoms.skipped,
    ),
    Cause(
        name="launch failure",
        what="Slurm could not start the job: nothing of it ran, mostly as the folder of its "
        "output was missing or could not be written on the node",
        advice="make the folder of --output before sbatch (mkdir -p logs), and submit again",
        find=interruptions.launch_failure,
    ),
    Cause(
        name="config",
        what=FAILURES["config"].meaning,
        advice="mend what the message names, then submit again; first: "
        "python -m launch preflight CONFIG",
        find=symptoms.of_reason("config"),
    ),
    Cause(
        name="cuda oom",
        what=FAILURES["oom"].meaning + "{culprit}",
        advice=f"{RESUME} train.micro_batch=auto   (python -m train forecast tells what fits)",
        find=symptoms.cuda_oom,
    ),
    Cause(
        name="host oom",
        what=FAILURES["host_oom"].meaning + "{culprit}",
        advice=f"{RESUME} resources.memory_gb=MORE   (or data.workers=FEWER in a new run)",
        find=symptoms.host_oom,
    ),
    Cause(
        name="disk",
        what=FAILURES["disk"].meaning + "{culprit}",
        advice="df -h {logs}; du -sh {logs}/*; free some, then " + RESUME,
        find=symptoms.disk,
    ),
    Cause(
        name="gpu fault",
        what="a GPU broke down{culprit}",
        advice="tell the site's support, and stay off the node: "
        + RESUME
        + " -- --exclude={nodes}",
        find=symptoms.gpu_fault,
    ),
    Cause(
        name="nan",
        what=FAILURES["nan"].meaning + "{culprit}",
        advice="python -m analysis loss {run}; then a new run with a lower optimizer.lr, a longer "
        "optimizer.warmup_steps or train.precision=fp32",
        find=symptoms.of_reason("nan"),
    ),
    Cause(
        name="data",
        what=FAILURES["data"].meaning + "{culprit}",
        advice="python -m train doctor PATH_OF_THE_DATA; then " + RESUME,
        find=symptoms.data,
    ),
    Cause(
        name="port clash",
        what="a port that the ranks wanted to meet at was taken",
        advice=f"{RESUME}   (another attempt takes another port)",
        find=symptoms.port_clash,
    ),
    Cause(
        name="node failure",
        what="Slurm lost a node of the job",
        advice=f"{RESUME} -- --exclude={{nodes}}   (unless Slurm has requeued it)",
        find=interruptions.node_failure,
    ),
    Cause(
        name="time limit",
        what="the job's time was over{saved}",
        advice=f"{RESUME}   (it goes on where it saved; resources.hours=MORE for longer)",
        find=interruptions.time_limit,
    ),
    Cause(
        name="preemption",
        what="the job had to make way for another{saved}",
        advice=f"{RESUME}   (unless Slurm has requeued it)",
        find=interruptions.preemption,
    ),
    Cause(
        name="requeue",
        what="the job was requeued{saved}",
        advice="python -m launch tail {run}",
        find=interruptions.requeue,
    ),
    Cause(
        name="scancel",
        what="somebody cancelled the job{saved}",
        advice=RESUME,
        find=interruptions.scancel,
    ),
    Cause(
        name="stop file",
        what="somebody asked the run to stop{saved}",
        advice=RESUME,
        find=interruptions.stop_file,
    ),
    Cause(
        name="asked to pause",
        what="somebody, or Slurm, sent the signal to save and make way{saved}",
        advice=RESUME,
        find=interruptions.pause,
    ),
    Cause(
        name="killed",
        what="a process was killed from outside{culprit}: by the kernel for its memory, by an "
        "administrator, or by a crash in native code",
        advice="ssh {nodes} dmesg | tail, or ask the site; then " + RESUME,
        find=symptoms.killed,
    ),
    Cause(
        name="no progress",
        what="attempt after attempt saved nothing new: it was not tried again",
        advice="see what ended each attempt, above; then " + RESUME,
        find=symptoms.no_progress,
    ),
    Cause(
        name="hang",
        what=FAILURES["hang"].meaning + "{culprit}",
        advice="tail {attempt}/ranks/*; then " + RESUME,
        find=symptoms.hang,
    ),
    Cause(
        name="nccl",
        what=FAILURES["nccl"].meaning + "{culprit}",
        advice="cat {attempt}/output.log; then " + RESUME,
        find=symptoms.lost_peers,
    ),
    Cause(
        name="exit 0 without done",
        what="the ranks left with 0, and no event says that the work is done",
        advice="cat {attempt}/output.log; then " + RESUME,
        find=symptoms.silent_success,
    ),
    Cause(
        name="crash",
        what=FAILURES["crash"].meaning + "{culprit}",
        advice="cat {attempt}/error.json; mend it, then " + RESUME,
        find=symptoms.crash,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The cause of one attempt's end and the lines that show it; no cause where none is known."""

    scene: Evidence
    cause: Cause | None
    evidence: list[str]
    culprit: str


def judge(scene: Evidence) -> Diagnosis:
    """The root of an attempt's end."""
    for cause in CAUSES:
        evidence = cause.find(scene)
        if evidence:
            culprit = first_failure.culprit(scene, cause.name)
            return Diagnosis(scene=scene, cause=cause, evidence=evidence, culprit=culprit)
    return Diagnosis(
        scene=scene, cause=None, evidence=[*scene.recorded(), *scene.by_slurm()], culprit=""
    )
