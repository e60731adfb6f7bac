"""Checkpoints of ai-toolkit: its files are adopted once whole, and verified before a resume."""

import json
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from configs.disk import read_safetensors_header, replace_file, replacing
from configs.errors import ConfigError
from finetune.aitoolkit.config import JOB
from runs.folder import RunFolder
from train.engine import checkpoint_files
from train.engine.failure import RunFailure
from train.engine.metrics import log

OPTIMIZER, PROGRESS = "optimizer.pt", "progress.json"
# A save of Wan 2.2 is two files, of the stages for high and for low noise; any other is one.
_FILE = re.compile(JOB + r"(?:_(\d{9}))?((?:_[a-z]\w*)?)\.safetensors")


@dataclass(frozen=True, kw_only=True)
class LoraSnapshot:
    """A checkpoint: its folder, the steps done, and the run's clocks at that step."""

    folder: Path
    step: int
    seconds: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class LoraSave:
    """The files of one save by ai-toolkit, by suffix, and the step of their metadata.

    `is_last` is true of the save after the last step, whose files have no number.
    """

    files: dict[str, Path]
    step: int
    is_last: bool


def metadata_step(lora: Path) -> int | None:
    """Return the step that ai-toolkit wrote into a LoRA file, or None if the file is damaged."""
    try:
        training = json.loads(read_safetensors_header(lora).metadata.get("training_info", "{}"))
    except (ConfigError, ValueError):
        return None
    step = training.get("step") if isinstance(training, dict) else None
    return step if isinstance(step, int) else None


def newest_checkpoint(folder: Path) -> LoraSnapshot | None:
    """Return the newest checkpoint with correct checksums, or None if there is no checkpoint.

    Damaged checkpoints are quarantined. Raise `RunFailure` if all are damaged.
    """
    names = checkpoint_files.newest_first(folder)
    for name in names:
        damaged = checkpoint_files.damaged_files(folder / name)
        if not damaged:
            progress = json.loads((folder / name / PROGRESS).read_text(encoding="utf-8"))
            return LoraSnapshot(
                folder=folder / name, step=progress["step"], seconds=progress["seconds"]
            )
        log.warning("%s is damaged (%s): quarantined", folder / name, ", ".join(damaged))
        checkpoint_files.quarantine(folder / name)
    if names:
        raise RunFailure("disk", f"{folder}: all checkpoints are damaged; delete it to start over")
    return None


def lay_out(checkpoint: LoraSnapshot, root: Path) -> None:
    """Copy a checkpoint into ai-toolkit's folder, as the only one there.

    ai-toolkit resumes from the LoRA with the newest ctime, and keeps one optimizer file for
    whichever LoRA that is.
    """
    root.mkdir(parents=True)
    for suffix, file in _by_suffix(checkpoint.folder).items():
        shutil.copyfile(file, root / f"{JOB}_{checkpoint.step:09d}{suffix}.safetensors")
    if (checkpoint.folder / OPTIMIZER).is_file():
        shutil.copyfile(checkpoint.folder / OPTIMIZER, root / OPTIMIZER)


class CheckpointCollector:
    """Adopts what ai-toolkit saves in `root`, each file once."""

    def __init__(self, root: Path, run: RunFolder, *, keep: int) -> None:
        self._root, self._run, self._keep = root, run, keep
        self._seen = set(_loras(root))

    def new_saves(self, *, last: int) -> list[LoraSave]:
        """Return the saves up to step `last` whose files are all whole and of one step.

        Each is returned once. A later one may be whole before ai-toolkit says that it is made.
        """
        groups: dict[str | None, dict[str, Path]] = {}
        for path in _loras(self._root):
            if path not in self._seen and (match := _FILE.fullmatch(path.name)):
                groups.setdefault(match[1], {})[match[2]] = path
        saves = []
        for number, files in groups.items():
            steps = {metadata_step(path) for path in files.values()}
            step = steps.pop()
            if step is not None and not steps and step <= last:
                saves.append(LoraSave(files=files, step=step, is_last=number is None))
                self._seen |= set(files.values())
        return saves

    def adopt(self, save: LoraSave, *, step: int, seconds: dict[str, float]) -> None:
        """Install a save and the optimizer beside it as the checkpoint after `step` steps."""
        checkpoints, name = self._run.checkpoints, checkpoint_files.step_name(step)
        folder = checkpoint_files.partial_path(checkpoints, name)
        checkpoints.mkdir(exist_ok=True)
        checkpoint_files.discard_partial(checkpoints)
        folder.mkdir()
        for suffix, file in save.files.items():
            shutil.copyfile(file, folder / f"{JOB}{suffix}.safetensors")
        self._copy_optimizer(folder)
        replace_file(folder / PROGRESS, json.dumps({"step": step, "seconds": seconds}) + "\n")
        sums = {file.name: checkpoint_files.file_sum(file) for file in sorted(folder.iterdir())}
        replace_file(folder / checkpoint_files.SUMS, json.dumps(sums, indent=1) + "\n")
        checkpoint_files.install(checkpoints, name, keep=self._keep)
        self._publish(_by_suffix(checkpoints / name), name)

    def clean_up(self) -> None:
        """Delete ai-toolkit's own copies of what the run's checkpoints hold."""
        for file in (*_loras(self._root), self._root / OPTIMIZER):
            file.unlink(missing_ok=True)

    def _copy_optimizer(self, folder: Path) -> None:
        if (self._root / OPTIMIZER).is_file():
            shutil.copyfile(self._root / OPTIMIZER, folder / OPTIMIZER)
        # ai-toolkit only prints a message if saving the optimizer fails.
        if not zipfile.is_zipfile(folder / OPTIMIZER):
            (folder / OPTIMIZER).unlink(missing_ok=True)
            log.warning("%s: no whole %s; a resume begins it anew", folder.name, OPTIMIZER)

    def _publish(self, files: dict[str, Path], name: str) -> None:
        """Copy the files of a save to the run's `lora/`, where readers look for them."""
        folder = self._run.lora
        folder.mkdir(exist_ok=True)
        for suffix, each in files.items():
            published = folder / f"{name}{suffix}.safetensors"
            with replacing(published) as file, each.open("rb") as source:
                shutil.copyfileobj(source, file)
        found = sorted(folder.glob("step-*.safetensors"))
        kept = sorted({file.name[: len(name)] for file in found})[-self._keep :]
        for old in found:
            if old.name[: len(name)] not in kept:
                old.unlink()


def _by_suffix(folder: Path) -> dict[str, Path]:
    """Return the LoRA files of a checkpoint by suffix."""
    found = {file: _FILE.fullmatch(file.name) for file in folder.glob(f"{JOB}*.safetensors")}
    return {match[2]: file for file, match in found.items() if match}


def _loras(root: Path) -> list[Path]:
    return sorted(root.glob(f"{JOB}*.safetensors")) if root.is_dir() else []
