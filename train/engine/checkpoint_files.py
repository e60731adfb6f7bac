"""Checkpoints on disk: written beside, checked by their sums, installed whole, found again."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from configs.disk import replace_file, sync_folder
from configs.run.records import Superseded

SUMS = "checksums.json"
_PARTIAL, _DAMAGED = ".partial", ".damaged"


def step_name(step: int) -> str:
    """The folder name of the checkpoint after `step` steps."""
    return f"step-{step:09d}"


def complete(folder: Path) -> list[str]:
    """The names of checkpoints that were written to their end, oldest first."""
    if not folder.is_dir():
        return []
    found = (entry for entry in folder.iterdir() if (entry / SUMS).is_file())
    return sorted(entry.name for entry in found if not entry.suffix)


def newest_first(folder: Path) -> list[str]:
    """The names of whole checkpoints, that which `latest` points to before all others."""
    names = complete(folder)[::-1]
    pointer = folder / "latest"
    named = pointer.read_bytes().strip().decode("utf-8", "replace") if pointer.is_file() else ""
    return sorted(names, key=lambda name: name != named)


def newest(folder: Path) -> str | None:
    """The name of the newest checkpoint, unless there is none."""
    names = newest_first(folder)
    return names[0] if names else None


def damaged_files(checkpoint: Path, *, part: int = 0, parts: int = 1) -> list[str]:
    """Which of a `part` of the checkpoint's files are missing or not as they were written."""
    try:
        sums: dict[str, str] = json.loads((checkpoint / SUMS).read_text(encoding="utf-8"))
    except ValueError:
        return [SUMS]
    return [name for name in sorted(sums)[part::parts] if file_sum(checkpoint / name) != sums[name]]


def quarantine(checkpoint: Path) -> None:
    """Rename a damaged checkpoint, so that nothing takes it for a good one."""
    aside = checkpoint.with_suffix(_DAMAGED)
    if aside.exists():
        shutil.rmtree(aside)
    checkpoint.rename(aside)


class CheckpointWriter(FileSystemWriter):
    """Writes a checkpoint beside its place, with a sum of every file, and installs it.

    The pointer `latest` moves last, so a kill at any moment leaves the older checkpoint or the
    newer one. `is_superseded` keeps the rank of an older attempt from installing its own.
    """

    def __init__(
        self, folder: Path, name: str, *, keep: int, is_superseded: Callable[[], bool]
    ) -> None:
        self._folder, self._name, self._keep = folder, name, keep
        self._is_superseded = is_superseded
        self._beside = partial_path(folder, name)
        super().__init__(self._beside)

    def prepare(self) -> None:
        """Clear away what a kill left half written; one rank does it."""
        self._folder.mkdir(exist_ok=True)
        discard_partial(self._folder)
        self._beside.mkdir()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's files and their sums."""
        written = super().write_data(plan, planner)
        names = {result.storage_data.relative_path for result in written.value()}
        sums = {name: file_sum(self._beside / name) for name in sorted(names)}
        replace_file(self._beside / f"{dist.get_rank()}.{SUMS}", json.dumps(sums))
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write what all ranks' files mean, and install them; the coordinating rank does it."""
        super().finish(metadata, results)
        parts = list(self._beside.glob(f"*.{SUMS}"))
        sums = {".metadata": file_sum(self._beside / ".metadata")}
        for part in parts:
            sums |= json.loads(part.read_text(encoding="utf-8"))
            part.unlink()
        replace_file(self._beside / SUMS, json.dumps(sums, indent=1, sort_keys=True) + "\n")
        self._install()

    def _install(self) -> None:
        if self._is_superseded():
            raise Superseded(f"{self._folder}: a newer attempt has begun")
        install(self._folder, self._name, keep=self._keep)


def partial_path(folder: Path, name: str) -> Path:
    """Where a checkpoint is written before it is installed."""
    return folder / f"{name}{_PARTIAL}"


def install(folder: Path, name: str, *, keep: int) -> None:
    """Move what was written beside, its sums included, into place as the newest checkpoint."""
    final = folder / name
    if final.exists():  # the same step again, after a resume from an older one
        final.rename(folder / f"{name}.old{_PARTIAL}")
    partial_path(folder, name).rename(final)
    sync_folder(folder)
    replace_file(folder / "latest", f"{name}\n")
    discard_partial(folder)
    for old in complete(folder)[:-keep]:
        shutil.rmtree(folder / old)


def discard_partial(folder: Path) -> None:
    """Delete what is half written."""
    for entry in folder.glob(f"*{_PARTIAL}"):
        shutil.rmtree(entry)


@contextmanager
def first_cause() -> Iterator[None]:
    """Raise what a rank met itself, in place of what is no `Exception` and tells of all ranks."""
    try:
        yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        raise causes[0] from None


def file_sum(file: Path) -> str | None:
    """The SHA-256 of a file's content; None where it cannot be read."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None
