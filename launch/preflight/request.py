"""Check what a config requests: its batch, paths and GPU memory, and the flags for the cluster."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.checks.batch import check_ranks
from configs.checks.infer import infer_spec
from configs.checks.paths import check_paths
from configs.errors import ConfigError
from configs.run.folder import ROOT, RunFolder, is_run, new_id
from configs.schema import Finetune, Infer, Pretrain, Run
from launch import forecast
from launch.forecast import ForecastAnswer
from launch.preflight.check import CheckResult, failure, passed, warning
from launch.slurm import client, executor, limits
from launch.slurm.client import Refused
from launch.slurm.flags import Flags, to_words
from launch.submit import snapshot
from launch.submit.run import read_config
from launch.submit.script import RunRequest, batch_script
from launch.submit.site import Site, read_site


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The run to check; it may stand for `runs` runs of a study.

    `yaml` is the file that its config is made from, with `overrides`.
    """

    source: Path
    yaml: Path
    overrides: list[str]
    config: Run
    resumes: RunFolder | None
    site: Site
    runs: int = 1

    def job(self) -> tuple[Flags, str]:
        """Return the flags and the batch script that `launch submit` would give to sbatch."""
        request = RunRequest(
            source=self.source,
            overrides=self.overrides,
            config=self.config,
            resumes=self.resumes,
            identity=new_id(),
            site=self.site,
            # The script only names the folder of the snapshot, which is made at submission.
            tree=snapshot.Tree(digest="preflight", files=[]),
            flags={},
        )
        script = batch_script(request, request.run)
        return script.flags, executor.sbatch_text(script)


def read_subject(source: Path, overrides: list[str], *, site_name: str | None) -> Subject:
    """Return a config or a run as it would be submitted; raise `ConfigError` if it is invalid."""
    resumes = RunFolder(source.resolve()) if is_run(source) else None
    config = read_config(source, overrides, resumes)
    return Subject(
        source=source,
        yaml=resumes.config_file if resumes else source,
        overrides=overrides,
        config=config,
        resumes=resumes,
        site=read_site(ROOT, config.resources, name=site_name),
    )


def batch(subject: Subject) -> Iterator[CheckResult]:
    """Check that `train.global_batch` divides over the ranks."""
    world = subject.config.resources.world
    try:
        check_ranks(subject.config, world=world)
    except ConfigError as error:
        yield failure("batch", str(error))
    else:
        ranks = "1 rank" if world == 1 else f"{world} ranks"
        yield passed("batch", f"divides over {ranks}")


def paths(subject: Subject) -> Iterator[CheckResult]:
    """Check that the paths in the config exist on this machine."""
    try:
        check_paths(subject.config)
    except ConfigError as error:
        yield failure("data", str(error))
    else:
        yield passed("data", "all paths of the config exist on this machine")
        yield from _model(subject)


def _model(subject: Subject) -> Iterator[CheckResult]:
    """Report that the Flux is complete: a node without network could not download any of it."""
    if isinstance(subject.config, Finetune):
        folder = subject.config.flux.folder
    elif isinstance(subject.config, Infer):
        folder = str(infer_spec(subject.config).folder)
    else:
        return
    yield passed("model", f"{folder} has every file of a Flux: a node fetches nothing")


def cluster(subject: Subject) -> Iterator[CheckResult]:
    """Check the limits of the partition, which --test-only accepts, and the flags by sbatch."""
    flags, text = subject.job()
    try:
        limits.check_partition(flags, client.partitions())
    except ConfigError:
        yield warning("cluster", "Slurm not found", "run preflight on a machine with Slurm")
        return
    except Refused as error:
        yield failure("partition", str(error))
    else:
        yield passed("partition", f"allows {flags.get('time')} on {flags.get('nodes')} nodes")
    try:
        remarks = limits.check_by_sbatch(flags, text)
    except Refused as error:
        message, _, fix = str(error).rpartition("\n")
        yield failure("gpu flags", message, fix)
        return
    if remarks:
        yield warning("gpu flags", "; ".join(remarks), "check again when the nodes are back")
    else:
        accepted = shlex.join(to_words(subject.site.flags))
        yield passed("gpu flags", f"sbatch accepts {accepted}")


def forecast_of(subject: Subject) -> ForecastAnswer:
    """Return the forecast of the run."""
    if not isinstance(subject.config, Pretrain):
        return ForecastAnswer(remark=f"kind {subject.config.kind}")
    return forecast.ask([(subject.yaml, subject.overrides)])[0]


def gpu_memory(subject: Subject, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check that the run fits into the memory of its GPU."""
    if subject.config.resources.gpus_per_node == 0:
        yield passed("gpu memory", "no GPU is requested")
        return
    if not forecast.gpus:
        yield warning("gpu memory", f"unknown: {forecast.remark}")
        return
    fits = [name for name, gpu in forecast.gpus.items() if gpu["fits"]]
    too_small = {name: gpu for name, gpu in forecast.gpus.items() if not gpu["fits"]}
    if not too_small:
        name, gpu = next(iter(forecast.gpus.items()))
        total, capacity = gpu["gib"]["total"], gpu["capacity_gib"]
        yield passed("gpu memory", f"{total:.1f} of {capacity:.0f} GiB of {name}, by forecast")
        return
    _, gpu = next(iter(too_small.items()))
    message = f"does not fit on {', '.join(too_small)}: {gpu['reason']}"
    if fits:
        fix = f"set resources.gpu to one of {', '.join(fits)}, or {gpu['fix']}"
        yield warning("gpu memory", message, fix)
    else:
        yield failure("gpu memory", message, str(gpu["fix"]))
