"""Checks of the folder of runs: that it can be written, and that the checkpoints have room."""

import getpass
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Finetune, Pretrain
from launch.preflight.check import GIB, CheckResult, failure, passed, warning
from launch.preflight.forecast import ForecastAnswer
from launch.preflight.subject import Subject

_BYTES_FP32 = 4


@dataclass(frozen=True, kw_only=True)
class Room:
    """Bytes and files that can still be written, and who says so; None is no limit."""

    teller: str
    size: int | None
    files: int | None


def logs(subject: Subject) -> Iterator[CheckResult]:
    """Whether the folder of runs, or the one that it will be made in, can be written."""
    folder = subject.site.logs
    there = _existing(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".preflight-") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        mend = "set LOGS to a folder that can be written"
        yield failure("logs", f"{there}: cannot be written: {error.strerror}", mend)
        return
    if there == folder:
        yield passed("logs", f"{folder} can be written")
    else:
        mend = f"mkdir -p {folder}, which a plain sbatch needs for the output"
        yield warning("logs", f"{folder} is not there yet; launch submit makes it", mend)


def room(subject: Subject, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Whether checkpoint.keep saves and one being written fit into what is free."""
    config = subject.config
    if isinstance(config, Finetune):
        said = "the size of a LoRA's checkpoints is not forecast"
        yield warning("storage", said, "keep a gigabyte free for each of checkpoint.keep")
        return
    if not isinstance(config, Pretrain):
        yield passed("storage", f"a run of kind {config.kind} saves no checkpoints")
        return
    if forecast.parameters is None:
        yield warning("storage", f"size of a checkpoint unknown: {forecast.remark}")
        return
    one = checkpoint_bytes(config, forecast.parameters)
    saves = subject.runs * (config.checkpoint.keep + 1)
    files = saves * (subject.config.resources.world + 2)
    need = f"{saves} checkpoints of {one / GIB:.3g} GiB"
    for found in rooms(_existing(subject.site.logs)):
        if found.size is not None and found.size < saves * one:
            said = f"{need}, but {found.teller} leaves {found.size / GIB:.3g} GiB"
            yield failure(
                "storage", said, "free some, lower checkpoint.keep, or set LOGS elsewhere"
            )
            return
        if found.files is not None and found.files < files:
            said = f"{files} files for {need}, but {found.teller} leaves {found.files}"
            yield failure("storage", said, "remove old runs, or set LOGS elsewhere")
            return
    yield passed("storage", f"{need} fit")


def checkpoint_bytes(config: Pretrain, parameters: int) -> int:
    """fp32 weights, their average where one is kept, and two moments."""
    copies = 3 + (config.train.ema_decay is not None)
    return copies * _BYTES_FP32 * parameters


def rooms(folder: Path) -> Iterator[Room]:
    """What the file system has left, and what quotas leave of it."""
    free = os.statvfs(folder)
    yield Room(
        teller=f"the file system of {folder}",
        size=free.f_bavail * free.f_frsize,
        # Some file systems count no inodes.
        files=free.f_favail if free.f_files else None,
    )
    yield from _lustre_quota(folder)
    yield from _quota(folder)


def _lustre_quota(folder: Path) -> Iterator[Room]:
    words = _said("lfs", "quota", "-q", "-u", getpass.getuser(), str(folder)).split()
    # path, kilobytes, quota, limit, grace, files, quota, limit, grace
    if len(words) >= 9:
        yield _left("the quota of lfs", words[1], words[3], words[5], words[7])


def _quota(folder: Path) -> Iterator[Room]:
    said = _said("quota", "-w", "-p", "-f", str(_mount_of(folder)))
    for line in said.splitlines():
        words = line.split()
        # device, kilobytes, quota, limit, grace, files, quota, limit, grace
        if len(words) >= 9 and words[1].strip("*[]").isdigit():
            yield _left("your quota", words[1], words[3], words[5], words[7])


def _left(teller: str, kilobytes: str, limit: str, files: str, most: str) -> Room:
    # An asterisk marks what is exceeded, brackets what is only partly known.
    numbers = [int(re.sub(r"\D", "", word) or 0) for word in (kilobytes, limit, files, most)]
    used, allowed, made, may = numbers
    return Room(
        teller=teller,
        size=max(0, allowed - used) * 1024 if allowed else None,
        files=max(0, may - made) if may else None,
    )


def _mount_of(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.is_mount())


def _said(*command: str) -> str:
    """What a command says that may not be there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())
