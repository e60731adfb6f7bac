"""One attempt at a run as the job body sees it: how it is begun, and what its end means."""

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.batch import check_ranks
from configs.disk import replace_file
from configs.ending import cause
from configs.load import expect, load, merge, parse_overrides, read_tree, resolve, to_tree
from configs.paths import check_paths, with_absolute_paths
from configs.pruning import rule_out, settle_cell
from configs.records import Record, RecordWriter, Superseded, state
from configs.requeue import ATTEMPTS_WITHOUT_PROGRESS, is_stalled, may_requeue
from configs.run import (
    ROOT,
    RunFolder,
    claim_attempt,
    find_run,
    is_restarted,
    is_run,
    job_facts,
    make_run,
    node_name,
    resume_config,
)
from configs.schema import KINDS, Run
from configs.version import version
from configs.yaml12 import ConfigError

# What `close` makes of the last event: the exit code of the job.
_EXIT_CODES = {"done": 0, "stopped": 0, "paused": 0, "skipped": 0, "failed": 1}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How an attempt ended: its last event, the exit code that says so, and what is next.

    `faulty_node` is the one that broke down under it, which the next attempt does well to avoid.
    """

    event: str
    exit_code: int
    requeue: bool = False
    faulty_node: str = ""


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
            _fail(found, max(found.attempts(), default=0), reason="config", message=str(error))
        raise
    if found and found.is_done(config):
        longer = "; raise train.steps to go on" if config.last_step() else ""
        print(f"{found.path}: done already{longer}", file=sys.stderr)
        return None
    if found and _is_skipped(found, config):
        return None
    if found and is_restarted() and is_stalled(found):
        message = f"{ATTEMPTS_WITHOUT_PROGRESS} attempts in a row saved nothing new"
        _fail(found, found.attempts()[-1], reason="timeout", message=message)
        raise ConfigError(f"{found.path}: {message}; see attempts/*/output.log in it")
    _warn_of_allocation(config, nodes=nodes, gpus=gpus)
    run = found or make_run(_name(source, config), to_tree(config))
    number = claim_attempt(run, config)
    attempt = run.attempt(number)
    run.note(
        number,
        time=time.time(),
        began=began,
        source=str(source),
        command=shlex.join([f"jobs/{config.kind}.sbatch", str(source), *overrides]),
        host=node_name(),
        slurm=job_facts() or None,
        **_code(attempt),
    )
    print(f"run {run.path}, attempt {number}", file=sys.stderr)
    return attempt


def close_attempt(attempt: Path, *, status: int) -> Verdict:
    """Settle how an attempt ended, whose ranks have left with `status`.

    An attempt whose ranks wrote no last event gets `failed` here, with the reason that its
    first failing rank left in `error.json`.
    """
    run = RunFolder(attempt.parent.parent)
    number = int(attempt.name)
    if number == max(run.attempts()):
        run.note(number, ended=time.time())
    try:
        last = _last_event(run, number) or _fail(run, number, **cause(attempt, status=status))
        if last["event"] == "stopped" and status and not _is_asked_to_stop(run, attempt):
            # Where one agent dies, srun ends the ranks of the others by the signal of a scancel.
            last = _fail(run, number, **cause(attempt, status=status))
        if last["event"] == "paused" and is_stalled(run):
            message = f"{ATTEMPTS_WITHOUT_PROGRESS} attempts in a row saved nothing new"
            last = _fail(run, number, reason="timeout", message=message)
    except Superseded:
        return Verdict(event="superseded", exit_code=1)
    for other in settle_cell(run, last):
        print(f"skipped: {other} needs at least the memory that {run.name} lacked", file=sys.stderr)
    return Verdict(
        event=last["event"],
        exit_code=_EXIT_CODES[last["event"]],
        requeue=may_requeue(run, last),
        faulty_node=last.get("node", "") if last.get("reason") == "node" else "",
    )


def _has_begun_in_this_job(run: RunFolder) -> bool:
    """Whether Slurm started this very job before, and an attempt at the run began in it."""
    jobs = [entry.get("slurm", {}).get("job") for entry in run.manifest().get("attempts", [])]
    return is_restarted() and job_facts().get("job") in jobs


def _is_asked_to_stop(run: RunFolder, attempt: Path) -> bool:
    """Whether a person wants the run to end; the job script notes a signal that it got itself."""
    return run.stop_file.exists() or (attempt / "STOP").exists()


def _is_skipped(run: RunFolder, config: Run) -> bool:
    """Whether a study has ruled the run out, before it began."""
    last = state(run.records())
    proof = last.get("proof") if last and last["event"] == "skipped" else rule_out(run, config)
    if proof is not None:
        print(f"{run.path}: skipped, as {proof} ran out of memory", file=sys.stderr)
    return proof is not None


def _last_event(run: RunFolder, attempt: int) -> Record | None:
    """The event that an attempt ended with, where it wrote one."""
    found = [
        record
        for record in run.records()
        if record.get("attempt") == attempt and record.get("event") in _EXIT_CODES
    ]
    return found[-1] if found else None


def _fail(run: RunFolder, attempt: int, **why: Any) -> Record:
    writer = RecordWriter(run.path, attempt=attempt)
    try:
        record = writer.event("failed", **why)
    finally:
        writer.close()
    print(f"failed ({why['reason']}): {why['message']}", file=sys.stderr)
    return record


def _checked_config(
    found: RunFolder | Run, overrides: list[str], nodes: int, gpus: int | None
) -> Run:
    config = resume_config(found, overrides) if isinstance(found, RunFolder) else found
    check_paths(config)
    if gpus is not None:
        check_ranks(config, world=nodes * (gpus or config.resources.ranks_per_node or 1))
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
