"""Checks of what the config asks for: its batch, its paths, what the cluster makes of its flags."""

import shlex
from collections.abc import Iterator

from configs.checks.batch import check_ranks
from configs.checks.infer import infer_spec
from configs.checks.paths import check_paths
from configs.errors import ConfigError
from configs.schema import Finetune, Infer
from launch.preflight.check import CheckResult, failure, passed, warning
from launch.preflight.subject import Subject
from launch.slurm import client, limits
from launch.slurm.client import Refused
from launch.slurm.flags import Flags, spell


def batch(subject: Subject) -> Iterator[CheckResult]:
    """Whether `train.global_batch` divides over the ranks."""
    try:
        check_ranks(subject.config, world=subject.config.resources.world)
    except ConfigError as error:
        yield failure("batch", str(error))
    else:
        yield passed("batch", f"divides over {_ranks(subject.config.resources.world)}")


def _ranks(world: int) -> str:
    return "1 rank" if world == 1 else f"{world} ranks"


def paths(subject: Subject) -> Iterator[CheckResult]:
    """Whether what the config names is there, seen from here."""
    try:
        check_paths(subject.config)
    except ConfigError as error:
        yield failure("data", str(error))
    else:
        yield passed("data", "all paths of the config are there, seen from this machine")
        yield from _model(subject)


def _model(subject: Subject) -> Iterator[CheckResult]:
    """That a Flux is whole: on a node that reaches no network nothing could be fetched."""
    if isinstance(subject.config, Finetune):
        folder = subject.config.flux.folder
    elif isinstance(subject.config, Infer):
        folder = str(infer_spec(subject.config).folder)
    else:
        return
    yield passed("model", f"{folder} has every file of a Flux: a node fetches nothing")


def partition(subject: Subject) -> Iterator[CheckResult]:
    """Partition limits, which --test-only lets pass, and what sbatch says of the very flags."""
    flags, text = subject.job()
    try:
        remarks = limits.check(flags, text)
    except ConfigError:
        yield warning("cluster", "no Slurm here to ask", "ask on a machine that submits jobs")
        return
    except Refused as error:
        said = str(error)
        if not said.startswith("sbatch refuses"):
            yield failure("partition", said)
            yield from _gpu_flags(subject, text)
            return
        first, _, mend = said.rpartition("\n")
        yield passed("partition", _limits(flags))
        yield failure("gpu flags", first, mend)
        return
    yield passed("partition", _limits(flags))
    if remarks:
        yield warning("gpu flags", "; ".join(remarks), "ask again when the nodes are back")
    else:
        yield _accepted(subject)


def _limits(flags: Flags) -> str:
    return f"allows {flags.get('time')} on {flags.get('nodes')} nodes"


def _gpu_flags(subject: Subject, text: str) -> Iterator[CheckResult]:
    """What sbatch says, where the partition was refused already."""
    answer = client.run("sbatch", "--test-only", text=text)
    if answer.returncode:
        yield failure("gpu flags", answer.stderr.strip())
    else:
        yield _accepted(subject)


def _accepted(subject: Subject) -> CheckResult:
    return passed("gpu flags", f"sbatch takes {shlex.join(spell(subject.site.flags))}")
