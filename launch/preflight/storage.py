"""Check that the folder of runs is writable and has space for the checkpoints."""

import getpass
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Finetune, Pretrain
from launch.forecast import ForecastAnswer
from launch.preflight.check import GIB, CheckResult, failure, passed, warning
from launch.preflight.request import Subject

_BYTES_FP32 = 4


@dataclass(frozen=True, kw_only=True)
class Room:
    """The bytes and files that can still be written, and the source; None is no limit."""

    source: str
    size: int | None
    files: int | None


def logs(subject: Subject) -> Iterator[CheckResult]:
    """Check that the folder of runs, or its nearest existing parent, is writable."""
    folder = subject.site.logs
    existing = _existing(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".preflight-") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        fix = "set LOGS to a writable folder"
        yield failure("logs", f"{existing}: not writable: {error.strerror}", fix)
        return
    if existing == folder:
        yield passed("logs", f"{folder} is writable")
    else:
        fix = f"mkdir -p {folder}, which a plain sbatch needs for the output"
        yield warning("logs", f"{folder} does not exist yet; launch submit creates it", fix)


def room(subject: Subject, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check that there is space for checkpoint.keep checkpoints and one being written."""
    config = subject.config
    if isinstance(config, Finetune):
        message = "the size of a LoRA's checkpoints is not forecast"
        yield warning("storage", message, "keep a gigabyte free for each of checkpoint.keep")
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
            message = f"{need}, but {found.source} leaves {found.size / GIB:.3g} GiB"
            yield failure("storage", message, "free some, lower checkpoint.keep, or move LOGS")
            return
        if found.files is not None and found.files < files:
            message = f"{files} files for {need}, but {found.source} leaves {found.files}"
            yield failure("storage", message, "remove old runs, or move LOGS")
            return
    yield passed("storage", f"{need} fit")


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
    output = _output("quota", "-w", "-p", "-f", str(_mount_of(folder)))
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


def _mount_of(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.is_mount())


def _output(*command: str) -> str:
    """Return the output of a command that may not be installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())
