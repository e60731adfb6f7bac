"""The claim of a run for which several jobs are queued: the first job that starts trains it.

`ditbench submit --first` exports to each of these jobs the id of the submission and the shape that
the job stands for. The claim is a file with the id of the winner's job, so that it wins again after
a requeue. It appears whole or not at all, also on NFS: link(2) is atomic there, and the file is
read again, since the answer to a link that succeeded can be lost.
"""

import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path

from configs.disk import PARTIAL_SUFFIX, sync_folder
from configs.errors import ConfigError
from runs.folder import RunFolder
from runs.jobs import ALTERNATIVE, SUBMISSION, claim_file, claimant
from runs.slurm_env import job_facts

_LOST = "{}: another job started first and has it; nothing to do"


def alternative() -> str | None:
    """Return the shape that this job stands for, such as a40:1x2; None for a run's only job."""
    return os.environ.get(ALTERNATIVE) if os.environ.get(SUBMISSION) else None


def is_lost(run: RunFolder) -> bool:
    """Return, and say, whether another job of the same submission has claimed the run."""
    if alternative() is None or _claimant(run) in (None, _own_job()):
        return False
    print(_LOST.format(run.path), file=sys.stderr)
    return True


def may_be_lost(run: RunFolder) -> bool:
    """Return whether another job of the same submission has the run, or may still claim it."""
    return alternative() is not None and _claimant(run) != _own_job()


def claim_run(run: RunFolder) -> bool:
    """Claim the run; return False if another job has it, `ConfigError` if that stays unknown."""
    if alternative() is None:
        return True
    file = claim_file(run, os.environ[SUBMISSION])
    try:
        _link(f"{_own_job()}\n", file)
        # Without an exception the file exists: on NFS another job's may only become visible later.
        is_won = _claimant(run) == _own_job()
    except OSError as error:
        raise ConfigError(
            f"{file}: the run cannot be claimed: {error.strerror}; make room there, or if the file "
            "system has no hard links, submit without --first"
        ) from None
    if not is_won:
        print(_LOST.format(run.path), file=sys.stderr)
    return is_won


def _claimant(run: RunFolder) -> str | None:
    return claimant(run, os.environ[SUBMISSION])


def _own_job() -> str:
    job = job_facts().get("job")
    if job is None:
        raise ConfigError(f"{SUBMISSION} is set outside of a job of Slurm; unset it")
    return str(job)


def _link(content: str, file: Path) -> None:
    """Make a file with this content, unless it exists."""
    file.parent.mkdir(exist_ok=True)
    own = file.with_name(f".{secrets.token_hex(8)}{PARTIAL_SUFFIX}")
    try:
        with own.open("xb") as partial:
            partial.write(content.encode())
            partial.flush()
            os.fsync(partial.fileno())
        with suppress(FileExistsError):
            os.link(own, file)
    finally:
        own.unlink(missing_ok=True)
    sync_folder(file.parent)
