"""Refuse a second job or process, and order the cells that one process runs here, in turns."""

import random
import shlex
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from configs.schema import Study
from launch.slurm import client, executor
from launch.slurm.client import Refused
from runs.folder import RunFolder, new_id
from runs.jobs import awaited_job, started_job
from runs.records import saves
from runs.study_folder import StudyFolder

TRIES = 5


def check_no_job(run: RunFolder) -> None:
    """Refuse a second job for a run: its attempt would end the first job's."""
    jobs = [job for job in (awaited_job(run), started_job(run)) if job]
    for one in client.query_jobs(jobs).values():
        if not one.has_ended:
            raise Refused(
                f"{run.name}: its job {one.job} is {one.state}; wait until it ends, or cancel it: "
                f"ditbench cancel {shlex.quote(str(run.path))}"
            )


def check_no_process(study: StudyFolder) -> None:
    """Raise `Refused` if a process on this machine already runs the cells."""
    for file in study.jobs.glob("*.cells"):
        pid = file.stem
        if pid.isdigit() and _is_ours(pid):
            how = f"wait, or end it with ditbench cancel {shlex.quote(str(study.path))}"
            if study.stop_file.exists():
                how = "it was cancelled, and its cell still saves; try again in some seconds"
            raise Refused(f"{study.path}: process {pid} already runs it here; {how}")


def _is_ours(pid: str) -> bool:
    """Return whether the process runs cells; the pid may have been reused.

    Its command is empty for a moment as it begins, and once it has ended.
    """
    with suppress(OSError):
        for _ in range(TRIES):
            if command := Path("/proc", pid, "cmdline").read_bytes():
                return b"jobs/cells.sh" in command
            time.sleep(0.02)
    return False


def start_cells(
    study: StudyFolder, lines: Iterable[str], kind: str, *, code: Path,
    environment: Mapping[str, str], umask: int = -1,
) -> int:  # fmt: skip
    """Start jobs/cells.sh of a tree on these lines, and return the id of its process."""
    cells = study.jobs / "local.txt"
    cells.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = ["bash", str(code / "jobs" / "cells.sh"), str(study.path), kind, str(cells)]
    pid = executor.start_detached(words, study.jobs, environment=environment, umask=umask)
    (study.jobs / f"{pid}.cells").touch()
    return pid


def list_cells(study: StudyFolder, names: list[str], settings: Study) -> list[str]:
    """Return the lines for `jobs/cells.sh`: cells as they come, or the turns that they have left.

    A turn is `CELL ID:STEP`. It ends at a multiple of `interleave` steps, also after an
    interruption. The order is shuffled, and reversed in every second round, so that a drift of the
    node favours no run.
    """
    turn = settings.interleave
    if turn is None:
        return names
    session, lines = new_id(), list[str]()
    spans = {}
    for run in (RunFolder(study.cell(name)) for name in names):
        saved = max((save.get("step", 0) for save in saves(run.records())), default=0)
        spans[run.name] = saved, run.config().last_step()
    for end in range(turn, max(last for _, last in spans.values()) + 1, turn):
        left = [name for name, (saved, last) in spans.items() if saved < end <= last]
        pair, is_second = divmod(end // turn - 1, 2)
        random.Random(f"0 {pair}").shuffle(left)
        lines += [f"{name} {session}:{end}" for name in (left[::-1] if is_second else left)]
    return lines
