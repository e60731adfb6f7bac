"""Check that the folder of runs has space for the checkpoints."""

import getpass
import math
import os
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from configs.schema import Finetune, Pretrain
from launch.plan.forecast import ForecastAnswer
from launch.plan.result import GIB, CheckResult, failure, passed, warning
from launch.plan.saves import checkpoint_bytes
from launch.plan.study import Plan
from launch.submit.script import RunRequest


def room(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check that there is space for the checkpoints of a run."""
    config = request.config
    if isinstance(config, Finetune):
        message = "the size of a LoRA's checkpoints is not forecast"
        yield warning("storage", message, "keep a gigabyte free for each of checkpoint.keep")
    elif not isinstance(config, Pretrain):
        yield passed("storage", f"a run of kind {config.kind} saves no checkpoints")
    elif forecast.parameters is None:
        yield warning("storage", f"size of a checkpoint unknown: {forecast.remark}")
    else:
        yield _fits([_saves(config, forecast.parameters)], request.site.logs)


def study_room(plan: Plan, logs: Path, *, todo: Collection[str]) -> CheckResult | None:
    """Check that the checkpoints of the runs `todo` have space together."""
    runs = [run for run in plan.kept if run.name in todo]
    writing = {
        shape: min(count, plan.grid.study.throttle or count)
        for shape, count in Counter(run.shape for run in runs).items()
    }
    saves = [
        _saves(config, known.parameters, writing=writing.pop(run.shape, 0))
        for run in runs
        if isinstance(config := run.cell.config, Pretrain)
        and (known := plan.forecasts.get(run.cell.name))
        and known.parameters
    ]
    return _fits(saves, logs) if saves else None


def _saves(config: Pretrain, parameters: int, *, writing: int = 1) -> tuple[int, int]:
    """Return the most checkpoints that a run has at one time, `writing` included, and their bytes.

    While one is written, those that it replaces are still there.
    """
    kept = min(config.checkpoint.keep, math.ceil(config.train.steps / config.checkpoint.every))
    count = kept + writing
    return count, count * checkpoint_bytes(config, parameters)


def _fits(saves: Sequence[tuple[int, int]], logs: Path) -> CheckResult:
    """Check that the folder of runs has space for all these checkpoints."""
    count, size = (sum(column) for column in zip(*saves, strict=True))
    need = f"{count} checkpoints of {size / count / GIB:.3g} GiB"
    folder = next(place for place in (logs, *logs.parents) if place.exists())
    for source, free in free_bytes(folder):
        if free < size:
            message = f"{need}, but {source} leaves {free / GIB:.3g} GiB"
            return failure("storage", message, "lower checkpoint.keep, free space, or move LOGS")
    return passed("storage", f"{need} fit")


def free_bytes(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the bytes that the file system and the quotas leave, each with its source."""
    free = os.statvfs(folder)
    yield f"the file system of {folder}", free.f_bavail * free.f_frsize
    # Both print: place, kilobytes, quota, limit, grace, files, quota, limit, grace.
    lustre = _output("lfs", "quota", "-q", "-u", getpass.getuser(), str(folder)).split()
    mount = next(place for place in (folder, *folder.parents) if place.is_mount())
    lines = _output("quota", "-w", "-p", "-f", str(mount)).splitlines()
    for source, words in (
        ("the quota of lfs", lustre), *(("your quota", line.split()) for line in lines)
    ):  # fmt: skip
        # An asterisk marks an exceeded value, brackets a partly known one.
        numbers = [word.strip("*[]") for word in words[1:4:2]]
        if len(words) >= 9 and all(map(str.isdecimal, numbers)):
            used_kb, limit_kb = map(int, numbers)
            if limit_kb:
                yield source, max(0, limit_kb - used_kb) * 1024


def _output(*command: str) -> str:
    """Return the output of a command that may not be installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
