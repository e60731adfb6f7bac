"""Open an attempt at a run: find or create the run, check its config, claim the attempt."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from configs.checks.batch import check_ranks
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.load import expect, flatten, load, merge, parse_overrides, read_tree, resolve, to_tree
from configs.paths import with_absolute_paths
from configs.schema import KINDS, Command, Run
from configs.yaml12 import dump_yaml
from runs.attempt.close import STALLED, is_stalled, record_failure
from runs.checks.paths import check_paths
from runs.code_version import read_version
from runs.folder import (
    ROOT,
    RunFolder,
    changes,
    find_run,
    is_run,
    make_run,
    resume_config,
    run_name,
)
from runs.jobs import TURN, turn_end
from runs.slurm_env import batch_job, is_restarted, job_facts, node_name
from runs.state.fold import is_done, run_state
from runs.state.run_state import RunState


def open_attempt(
    source: Path,
    overrides: list[str],
    *,
    kind: str | None = None,
    nodes: int = 1,
    gpus: int | None = None,
    began: float | None = None,
) -> Path | None:
    """Find or create the run and claim an attempt; return its folder, or None if all is done.

    None is also returned if the run has left an interleaved study.

    `source` is a config of `kind`, a run of that kind to resume, or a run of another kind that
    the new run takes as its key `run`. With `kind` None any kind is accepted. `gpus` per node
    determine the number of ranks; None means that it is not known yet. `began` is the start of
    the job in seconds since 1970. A faulty config raises `ConfigError` before a folder is made.
    """
    job_facts()  # A variable of Slurm that is no number is refused before a folder is made.
    found = find_run(source, kind=kind)
    before = run_state(found) if found else RunState()
    if found and before.is_skipped:
        # The ends of other cells made this one needless before it began.
        print(f"{found.path}: skipped: {before.message}", file=sys.stderr)
        return None
    if found and turn_end() is not None and not before.is_waiting:
        return None  # The run has left its interleaved study.
    if found and _began_in_this_job(found):
        # After a requeue the run's own config counts: it may be newer than the command line.
        overrides = []
    try:
        config = resume_config(found, overrides) if found else _new_config(source, overrides, kind)
        check_paths(config)
        if gpus is not None:
            _check_ranks(config, found, nodes=nodes, gpus=gpus)
    except ConfigError as error:
        # If the run waits for this job, its records must show a failed start.
        if found and job_facts() and before.is_waiting:
            newest = max(found.attempts(), default=0)
            record_failure(found, newest, reason="config", message=str(error))
        raise
    if found and is_done(found, config):
        longer = "; raise train.steps to continue" if config.last_step() else ""
        print(f"{found.path}: done already{longer}", file=sys.stderr)
        return None
    if found and is_restarted() and is_stalled(found):
        record_failure(found, found.attempts()[-1], **STALLED)
        raise ConfigError(f"{found.path}: {STALLED['message']}; see attempts/*/output.log in it")
    if found and _obeys_stop(found, before, began=began):
        return None
    run = found or make_run(run_name(source, config), to_tree(config))
    try:
        return claim(run, config, began=began)
    except OSError as error:
        raise ConfigError(f"{run.path}: cannot begin an attempt: {error.strerror}") from None


def claim(run: RunFolder, config: Run, *, began: float | None) -> Path:
    """Create the folder of the next attempt, with its overrides and its facts; return it."""
    before, number = flatten(run.config_tree()), max(run.attempts(), default=0) + 1
    while True:
        try:
            run.attempt(number).mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
    attempt = run.attempt(number)
    if changes(before, to_tree(config)):
        # Compare with config.yaml, not with the last attempt: a change may have been reverted.
        overrides = changes(flatten(read_tree(run.config_file)), to_tree(config))
        replace_file(attempt / "overrides.yaml", dump_yaml(merge({}, overrides)))
    run.note(
        number,
        time=time.time(),
        began=began,
        host=node_name(),
        slurm=job_facts() or None,
        turn=os.environ.get(TURN) or None,
        **_code(attempt, Path(str(config.folder)) if isinstance(config, Command) else ROOT),
    )
    print(f"run {run.path}, attempt {number}", file=sys.stderr)
    return attempt


def _began_in_this_job(run: RunFolder) -> bool:
    """Return whether Slurm requeued this very job after an attempt at the run began in it."""
    jobs = [entry.get("slurm", {}).get("job") for entry in run.entries()]
    return is_restarted() and job_facts().get("job") in jobs


def _obeys_stop(run: RunFolder, state: RunState, *, began: float | None) -> bool:
    """Return whether a file STOP asks a run not to start, and record `stopped` then.

    One that is older is removed: whoever starts a stopped run again wants it to run. In a batch job
    older means before the last event, such as `queued`; else before the job `began`.
    """
    since = state.since or 0.0 if batch_job() else began or time.time()
    try:
        if not run.stop_file.exists():
            return False
        if is_restarted() or run.stop_file.stat().st_mtime > since:
            run.record_event(max(run.attempts(), default=0), "stopped", step=state.step)
            print(f"{run.path}: stopped before it began (file STOP)", file=sys.stderr)
            return True
        run.stop_file.unlink()
    except OSError as error:
        raise ConfigError(
            f"{run.stop_file}: {error.strerror}; remove it, so that the run can go on"
        ) from None
    return False


def _check_ranks(config: Run, found: RunFolder | None, *, nodes: int, gpus: int) -> None:
    """Raise `ConfigError` if the batch does not divide over the ranks of the job."""
    world = config.resources.model_copy(update={"nodes": nodes, "gpus_per_node": gpus}).world
    check_ranks(config, world=world, engine=found.engine() if found else None)


def _new_config(source: Path, overrides: list[str], kind: str | None) -> Run:
    if kind and is_run(source):
        tree = {"kind": kind, "run": str(source)}
        config = resolve(merge(tree, parse_overrides(overrides)), source=str(source))
    else:
        config = load(source, overrides)
    if kind and config.kind != kind:
        expect(config, KINDS[kind], source=source)
    return with_absolute_paths(config)


def _code(attempt: Path, root: Path) -> dict[str, Any]:
    """Return the commit that runs; write uncommitted changes to `code.patch`."""
    version = read_version(root)
    if version is None:
        return {}
    if version.patch:
        replace_file(attempt / "code.patch", version.patch)
    return {"commit": version.commit, "dirty": version.dirty}
