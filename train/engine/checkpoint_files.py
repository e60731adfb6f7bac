"""Checkpoint folders: written under a partial name, checked by checksums, then installed."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from configs.disk import replace_file, sync_folder
from configs.errors import ConfigError
from runs.json_files import read_json
from runs.records import Superseded

SUMS = "checksums.json"
_PARTIAL, _DAMAGED = ".partial", ".damaged"


def step_name(step: int) -> str:
    """Return the folder name of the checkpoint after `step` steps."""
    return f"step-{step:09d}"


def complete(folder: Path) -> list[str]:
    """Return the complete checkpoints, oldest first, also one whose checksums are gone."""
    found = (entry for entry in folder.glob("step-*") if entry.is_dir())
    return sorted(entry.name for entry in found if not entry.suffix)


def newest_first(folder: Path) -> list[str]:
    """Return the names of the complete checkpoints, the one that `latest` names first."""
    names = complete(folder)[::-1]
    pointer = folder / "latest"
    named = pointer.read_bytes().strip().decode("utf-8", "replace") if pointer.is_file() else ""
    return sorted(names, key=lambda name: name != named)


def newest(folder: Path) -> str | None:
    """Return the name of the newest complete checkpoint, or None."""
    names = newest_first(folder)
    return names[0] if names else None


def damaged_files(checkpoint: Path, *, part: int = 0, parts: int = 1) -> list[str]:
    """Return the missing or changed files of a checkpoint, of share `part` of `parts` only."""
    try:
        sums = read_json(checkpoint / SUMS, dict[str, str])
    except (ConfigError, FileNotFoundError):
        return [SUMS]
    names = {file.name for file in checkpoint.iterdir()} - {SUMS}
    if not names or not names <= set(sums):
        return [SUMS]
    return [name for name in sorted(sums)[part::parts] if file_sum(checkpoint / name) != sums[name]]


def quarantine(checkpoint: Path) -> None:
    """Rename a damaged checkpoint, so that it is not used again."""
    renamed = checkpoint.with_suffix(_DAMAGED)
    if renamed.exists():
        shutil.rmtree(renamed)
    checkpoint.rename(renamed)


class CheckpointWriter(FileSystemWriter):
    """Writes a checkpoint and a checksum of every file under a partial name, then installs it.

    The pointer `latest` moves last, so after a kill at any moment either the older or the newer
    checkpoint is there. `is_superseded` keeps an older attempt from installing its checkpoint.
    """

    def __init__(
        self, folder: Path, name: str, *, keep: int, is_superseded: Callable[[], bool]
    ) -> None:
        self._folder, self._name, self._keep = folder, name, keep
        self._is_superseded = is_superseded
        self._partial = partial_path(folder, name)
        super().__init__(self._partial)

    def prepare(self) -> None:
        """Delete partial checkpoints that a kill left behind. Called on one rank."""
        self._folder.mkdir(exist_ok=True)
        discard_partial(self._folder)
        self._partial.mkdir()

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copy to host memory what this rank will write of an asynchronous checkpoint."""
        return dict(super().stage(own_share(state_dict, {})))

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's files and their checksums."""
        written = super().write_data(plan, planner)
        names = {result.storage_data.relative_path for result in written.value()}
        sums = {name: file_sum(self._partial / name) for name in sorted(names)}
        replace_file(self._partial / f"{dist.get_rank()}.{SUMS}", json.dumps(sums))
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write metadata and all checksums, then install. Called on the coordinator."""
        super().finish(metadata, results)
        sums = {".metadata": file_sum(self._partial / ".metadata")}
        for part in list(self._partial.glob(f"*.{SUMS}")):
            sums |= json.loads(part.read_text(encoding="utf-8"))
            part.unlink()
        replace_file(self._partial / SUMS, json.dumps(sums, indent=1, sort_keys=True) + "\n")
        if self._is_superseded():
            raise Superseded(f"{self._folder}: a newer attempt has begun")
        install(self._folder, self._name, keep=self._keep)


def own_share(state: dict[str, Any], shares: dict[int, list[int]]) -> dict[str, Any]:
    """Return the tensors that this rank, of all that hold a copy, is to write.

    DCP chooses too, but after each rank has staged all that it holds, under DDP the whole state.
    A tensor goes to the copy with the fewest bytes in `shares`, by the number of copies.
    """
    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= {name: inner} if (inner := own_share(value, shares)) else {}
            continue
        number, copies = _copy_number(value)
        sizes = shares.setdefault(copies, [0] * copies)
        smallest = sizes.index(min(sizes))
        sizes[smallest] += value.nbytes
        if smallest == number:
            found[name] = value
    return found


def _copy_number(tensor: Tensor) -> tuple[int, int]:
    """Return the number of this rank's copy of a tensor or shard, and how many copies exist."""
    if not isinstance(tensor, DTensor):
        return dist.get_rank(), dist.get_world_size()
    mesh, number, copies = tensor.device_mesh, 0, 1
    for dim, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            number = number * mesh.size(dim) + mesh.get_local_rank(dim)
            copies *= mesh.size(dim)
    return number, copies


def partial_path(folder: Path, name: str) -> Path:
    """Return the path of a checkpoint before it is installed."""
    return folder / f"{name}{_PARTIAL}"


def install(folder: Path, name: str, *, keep: int) -> None:
    """Rename a partial checkpoint to its final name, point `latest` to it, and prune old ones."""
    final = folder / name
    if final.exists():  # the same step was saved before a resume from an older checkpoint
        final.rename(folder / f"{name}.old{_PARTIAL}")
    partial_path(folder, name).rename(final)
    sync_folder(folder)
    replace_file(folder / "latest", f"{name}\n")
    discard_partial(folder)
    for old in complete(folder)[:-keep]:
        shutil.rmtree(folder / old)


def discard_partial(folder: Path) -> None:
    """Delete all partial checkpoints."""
    for entry in folder.glob(f"*{_PARTIAL}"):
        shutil.rmtree(entry)


@contextmanager
def first_cause() -> Iterator[None]:
    """Raise a rank's own exception instead of DCP's summary, which is not an `Exception`."""
    try:
        yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        raise causes[0] from None


def file_sum(file: Path) -> str | None:
    """Return the SHA-256 of a file's content, or None if it cannot be read."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None
