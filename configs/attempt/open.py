"""How an attempt at a run is begun: the run found or made, its config checked, a folder claimed."""

import shlex
import sys
import time
from pathlib import Path
from typing import Any

from configs.attempt.close import record_failure
from configs.attempt.pruning import rule_out
from configs.attempt.requeue import ATTEMPTS_WITHOUT_PROGRESS, is_stalled
from configs.checks.batch import check_ranks
from configs.checks.paths import check_paths, with_absolute_paths
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.load import expect, load, merge, parse_overrides, read_tree, resolve, to_tree
from configs.run.code_version import version
from configs.run.folder import (
    ROOT,
    RunFolder,
    claim_attempt,
    find_run,
    is_run,
    make_run,
    resume_config,
)
from configs.run.records import state
from configs.run.slurm_env import is_restarted, job_facts, node_name
from configs.schema import KINDS, Run


def open_attempt(
    source: Path,
    overrides: list[str],
    *,
    kind: str | None = None,
    nodes: int = 1,
    gpus: int | None = None,
    began: float | None = None,
) -> Path | None:
    """Find or make the run and begin an attempt at it; its folder, or None where all is done.

    `source` is a config of `kind`, a run of that kind to resume, or a run of another kind that
    a new one of `kind` is about (its key `run`); None takes any kind. `gpus` per node decide how
    many ranks there will be, None where nobody knows yet; `began` is when the job did, in seconds
    since 1970. Whatever is wrong with the config raises `ConfigError` before a folder is made.
    """
    found = find_run(source, kind=kind)
    if found and _has_begun_in_this_job(found):
        # Requeued: what its command line asked for stands in the run, and may be older than that.
        overrides = []
    try:
        config = _checked_config(
            found or _new_config(source, overrides, kind), overrides, nodes, gpus
        )
    except ConfigError as error:
        if found and _is_awaited(found):
            record_failure(
                found, max(found.attempts(), default=0), reason="config", message=str(error)
            )
        raise
    if found and found.is_done(config):
        longer = "; raise train.steps to go on" if config.last_step() else ""
        print(f"{found.path}: done already{longer}", file=sys.stderr)
        return None
    if found and _is_skipped(found, config):
        return None
    if found and is_restarted() and is_stalled(found):
        message = f"{ATTEMPTS_WITHOUT_PROGRESS} attempts in a row saved nothing new"
        record_failure(found, found.attempts()[-1], reason="timeout", message=message)
        raise ConfigError(f"{found.path}: {message}; see attempts/*/output.log in it")
    _warn_of_allocation(config, nodes=nodes, gpus=gpus)
    run = found or make_run(_name(source, config), to_tree(config))
    command = shlex.join([f"jobs/{config.kind}.sbatch", str(source), *overrides])
    return _claim(run, config, source=str(source), command=command, began=began)


def _claim(run: RunFolder, config: Run, *, began: float | None, **facts: str) -> Path:
    """Claim the next attempt and note what it is; its folder."""
    number = claim_attempt(run, config)
    attempt = run.attempt(number)
    run.note(
        number,
        time=time.time(),
        began=began,
        **facts,
        host=node_name(),
        slurm=job_facts() or None,
        **_code(attempt),
    )
    print(f"run {run.path}, attempt {number}", file=sys.stderr)
    return attempt


def _has_begun_in_this_job(run: RunFolder) -> bool:
    """Whether Slurm started this very job before, and an attempt at the run began in it."""
    jobs = [entry.get("slurm", {}).get("job") for entry in run.manifest().get("attempts", [])]
    return is_restarted() and job_facts().get("job") in jobs


def _is_skipped(run: RunFolder, config: Run) -> bool:
    """Whether a study has ruled the run out, before it began."""
    last = state(run.records())
    proof = last.get("proof") if last and last["event"] == "skipped" else rule_out(run, config)
    if proof is not None:
        print(f"{run.path}: skipped, as {proof} ran out of memory", file=sys.stderr)
    return proof is not None


def _checked_config(
    found: RunFolder | Run, overrides: list[str], nodes: int, gpus: int | None
) -> Run:
    config = resume_config(found, overrides) if isinstance(found, RunFolder) else found
    check_paths(config)
    if gpus is not None:
        allocated = {"nodes": nodes, "gpus_per_node": gpus}
        check_ranks(config, world=config.resources.model_copy(update=allocated).world)
    return config


def _new_config(source: Path, overrides: list[str], kind: str | None) -> Run:
    about = "run" if is_run(source) else "config" if _is_measured(source, kind) else None
    if kind and about:
        tree = {"kind": kind, about: str(source)}
        config = resolve(merge(tree, parse_overrides(overrides)), source=str(source))
    else:
        config = load(source, overrides)
    if kind and config.kind != kind:
        expect(config, KINDS[kind], source=source)
    return with_absolute_paths(config)


def _is_measured(source: Path, kind: str | None) -> bool:
    """Whether a pretraining config stands for the published weights that it names."""
    return kind == "gns" and read_tree(source).get("kind", "pretrain") == "pretrain"


def _name(source: Path, config: Run) -> str:
    return f"{config.kind}-{source.resolve().name}" if is_run(source) else source.stem


def _is_awaited(run: RunFolder) -> bool:
    """Whether somebody waits for this very job to take the run up, and must hear if it cannot."""
    last = state(run.records())
    return bool(job_facts()) and last is not None and last["event"] in ("queued", "paused")


def _warn_of_allocation(config: Run, *, nodes: int, gpus: int | None) -> None:
    """Say where a Slurm job has other resources than its config names; the allocation wins."""
    asked = (config.resources.nodes, config.resources.gpus_per_node)
    if job_facts() and gpus is not None and asked != (nodes, gpus):
        print(
            f"warning: the config asks for {asked[0]} x {asked[1]} GPUs (nodes x per node), the "
            f"allocation has {nodes} x {gpus}; the allocation wins",
            file=sys.stderr,
        )


def _code(attempt: Path) -> dict[str, Any]:
    """The commit that runs, and where the tree differs from it, the difference in `code.patch`."""
    runs = version(ROOT)
    if runs is None:
        return {}
    if runs.patch:
        replace_file(attempt / "code.patch", runs.patch)
    return {"commit": runs.commit, "dirty": runs.dirty}
