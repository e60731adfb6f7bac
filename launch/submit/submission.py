"""Carry out a submission: the one run or the study that `plan` prints and `submit` starts."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from configs.errors import ConfigError
from configs.terminal import plural
from launch.plan.result import CheckResult
from launch.slurm.client import Refused
from launch.submit.study_cells import roll_back
from runs.folder import RunFolder

if TYPE_CHECKING:
    from launch.script.start import ScriptRerun
    from launch.script.submission import ScriptSubmission
    from launch.submit.config import ConfigSubmission

    # None of them writes anything before `prepare`.
    Submission: TypeAlias = ConfigSubmission | ScriptRerun | ScriptSubmission

How = Literal["slurm", "local", "plan"]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The flags of `submit` that say how; `new` makes another folder of a study."""

    how: How = "slurm"
    site_name: str | None = None
    new: bool = False
    force: bool = False


def submit(submission: "Submission") -> int:
    """Queue the runs, or start them here. Raise `ConfigError` or `Refused`."""
    is_study, choices = submission.is_study, submission.choices
    if finished := submission.finished():
        if is_study:
            print(f"study: {submission.folder}")
        print(finished, file=sys.stderr)
        return 0
    submission.check_idle()
    remarks = enforce(submission.checks(), force=choices.force)
    print(submission.bill(), file=sys.stderr)
    runs = submission.prepare()
    folder = submission.folder if is_study else runs[0].path
    if choices.how == "local":
        process = submission.start(runs)
        print(f"{'study' if is_study else 'run'}: {folder}\nprocess: {process}")
    else:
        remarks += _queue(submission, runs, folder)
    follow = "status" if is_study else "tail"
    last = f"follow it: ditbench {follow} {shlex.quote(str(folder))}"
    print("\n".join(dict.fromkeys([*remarks, last])), file=sys.stderr)
    return 0


def _queue(submission: "Submission", runs: Sequence[RunFolder], folder: Path) -> list[str]:
    """Queue the runs, print their jobs, and return remarks.

    If a job is refused, those before it stay queued; a new folder without any is removed.
    """
    jobs: list[str] = []
    try:
        for run in runs:
            jobs.append(submission.queue(run, jobs))
    except (Refused, OSError):
        roll_back(runs[len(jobs) :], folder=folder if submission.is_new and not jobs else None)
        raise
    finally:
        if jobs and submission.is_study:
            span = " to ".join(dict.fromkeys([jobs[0], jobs[-1]]))
            print(f"study: {folder}\njobs: {span} ({plural(len(jobs), 'run')})")
        elif jobs:
            print(f"run: {folder}\njob: {jobs[0]}")
    return submission.follow_up(jobs)


def enforce(results: Iterable[CheckResult], *, force: bool) -> list[str]:
    """Raise the failures as one error; return the remarks. `force` makes failures remarks."""
    found = list(results)
    failed = [one for one in found if one.error or one.level == "fail"]
    reasons = list(dict.fromkeys(str(one.error or one.text) for one in failed))
    if failed and not force:
        kind = ConfigError if isinstance(failed[0].error, ConfigError) else Refused
        raise kind("\n".join(reasons))
    remarks = dict.fromkeys(line for one in found for line in one.remarks)
    return [*(f"warning: {one}" for one in reasons), *remarks]


def bill(runs: int, gpu_hours: float) -> str:
    """Return the number of runs and the most that they cost."""
    most = f", at most {gpu_hours:g} GPU-hours" if gpu_hours else ""
    return plural(runs, "run") + most
