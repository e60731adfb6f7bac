"""Check that the folder of runs has space for the checkpoints."""

import getpass
import math
import os
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Command, Finetune, Pretrain
from launch.plan.forecast import ForecastAnswer
from launch.plan.result import GIB, CheckResult, failure, passed, warning
from launch.plan.study import Plan
from launch.submit.script import RunRequest

_BYTES_FP32 = 4


@dataclass(frozen=True, kw_only=True)
class Room:
    """The bytes and files that can still be written, and the source; None is no limit."""

    source: str
    size: int | None
    files: int | None


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The checkpoints that a run keeps, and `at_once` more that are being written with its own."""

    config: Pretrain
    parameters: int
    at_once: int = 1

    def count(self, keep: int) -> int:
        """Return the most checkpoints that exist at one time."""
        config = self.config
        return min(keep, math.ceil(config.train.steps / config.checkpoint.every)) + self.at_once

    @property
    def one(self) -> int:
        """The bytes of one checkpoint."""
        return checkpoint_bytes(self.config, self.parameters)


def room(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check that there is space for the checkpoints of a run."""
    config = request.config
    if isinstance(config, Finetune):
        message = "the size of a LoRA's checkpoints is not forecast"
        yield warning("storage", message, "keep a gigabyte free for each of checkpoint.keep")
    elif isinstance(config, Command):
        message = "the size of what the program writes is unknown"
        yield warning("storage", message, "look at the output/ of an earlier run")
    elif not isinstance(config, Pretrain):
        yield passed("storage", f"a run of kind {config.kind} saves no checkpoints")
    elif forecast.parameters is None:
        yield warning("storage", f"size of a checkpoint unknown: {forecast.remark}")
    else:
        saves = Checkpoints(config=config, parameters=forecast.parameters)
        yield room_for([saves], request.site.logs)


def room_for(saves: Sequence[Checkpoints], logs: Path) -> CheckResult:
    """Check that the folder of runs has space for all these checkpoints."""
    count, size = _total(saves, keep=None)
    files = sum(one.count(one.config.checkpoint.keep) * (one.config.resources.world + 2)
                for one in saves)  # fmt: skip
    need = f"{count} checkpoints of {size / count / GIB:.3g} GiB"
    _, least = _total(saves, keep=1)
    lower = f"checkpoint.keep=1 (then {least / GIB:.3g} GiB), " if least < size else ""
    for found in rooms(_existing(logs)):
        if found.size is not None and found.size < size:
            message = f"{need}, but {found.source} leaves {found.size / GIB:.3g} GiB"
            return failure("storage", message, f"{lower}free space, or move LOGS")
        if found.files is not None and found.files < files:
            message = f"{files} files for {need}, but {found.source} leaves {found.files}"
            return failure("storage", message, "remove old runs, or move LOGS")
    return passed("storage", f"{need} fit")


def study_room(plan: Plan, logs: Path, *, todo: Collection[str]) -> CheckResult | None:
    """Check that the checkpoints of the runs `todo` have space together."""
    runs = [run for run in plan.kept if run.name in todo]
    at_once = {
        shape: min(count, plan.grid.study.throttle or count)
        for shape, count in Counter(run.shape for run in runs).items()
    }
    saves = [
        Checkpoints(config=config, parameters=known.parameters, at_once=at_once.pop(run.shape, 0))
        for run in runs
        if isinstance(config := run.cell.config, Pretrain)
        and (known := plan.forecasts.get(run.cell.name))
        and known.parameters
    ]
    return room_for(saves, logs) if saves else None


def _total(saves: Sequence[Checkpoints], *, keep: int | None) -> tuple[int, int]:
    """Return the number and the bytes of all checkpoints; `keep` None is that of each config."""
    counts = [one.count(keep or one.config.checkpoint.keep) for one in saves]
    return sum(counts), sum(n * one.one for n, one in zip(counts, saves, strict=True))


def checkpoint_bytes(config: Pretrain, parameters: int) -> int:
    """Return the size of fp32 weights, their average if it is kept, and two moments."""
    copies = 3 + (config.train.ema_decay is not None)
    return copies * _BYTES_FP32 * parameters


def rooms(folder: Path) -> Iterator[Room]:
    """Yield what the file system and the quotas leave."""
    free = os.statvfs(folder)
    yield Room(
        source=f"the file system of {folder}",
        size=free.f_bavail * free.f_frsize,
        # Some file systems do not count inodes.
        files=free.f_favail if free.f_files else None,
    )
    yield from _lustre_quota(folder)
    yield from _quota(folder)


def _lustre_quota(folder: Path) -> Iterator[Room]:
    words = _output("lfs", "quota", "-q", "-u", getpass.getuser(), str(folder)).split()
    # path, kilobytes, quota, limit, grace, files, quota, limit, grace
    if len(words) >= 9:
        yield _left("the quota of lfs", words[1], words[3], words[5], words[7])


def _quota(folder: Path) -> Iterator[Room]:
    mount = next(place for place in (folder, *folder.parents) if place.is_mount())
    output = _output("quota", "-w", "-p", "-f", str(mount))
    for line in output.splitlines():
        words = line.split()
        # device, kilobytes, quota, limit, grace, files, quota, limit, grace
        if len(words) >= 9 and words[1].strip("*[]").isdigit():
            yield _left("your quota", words[1], words[3], words[5], words[7])


def _left(source: str, kilobytes: str, limit: str, files: str, most: str) -> Room:
    # An asterisk marks an exceeded value, brackets a partly known one.
    numbers = [int(re.sub(r"\D", "", word) or 0) for word in (kilobytes, limit, files, most)]
    used_kb, limit_kb, files_used, files_limit = numbers
    return Room(
        source=source,
        size=max(0, limit_kb - used_kb) * 1024 if limit_kb else None,
        files=max(0, files_limit - files_used) if files_limit else None,
    )


def _output(*command: str) -> str:
    """Return the output of a command that may not be installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())
