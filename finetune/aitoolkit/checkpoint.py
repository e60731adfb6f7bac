"""ai-toolkit's files as checkpoints of ours: taken over when whole, checked before a resume."""

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from configs.disk import read_safetensors_header, replace_file
from configs.errors import ConfigError
from configs.run.folder import RunFolder
from finetune.aitoolkit.config import JOB
from train.engine.checkpoint_files import (
    SUMS,
    damaged_files,
    discard_partial,
    file_sum,
    install,
    newest_first,
    partial_path,
    quarantine,
    step_name,
)
from train.engine.failure import RunFailure
from train.engine.metrics import log

LORA, OPTIMIZER, PROGRESS = "lora.safetensors", "optimizer.pt", "progress.json"


@dataclass(frozen=True, kw_only=True)
class LoraSnapshot:
    """A LoRA after `step` steps, and the run's clocks then."""

    folder: Path
    step: int
    seconds: dict[str, float]


def metadata_step(lora: Path) -> int | None:
    """The step that ai-toolkit wrote into a LoRA file; None where the file is not whole."""
    try:
        told = json.loads(read_safetensors_header(lora).metadata.get("training_info", "{}"))
    except (ConfigError, ValueError):
        return None
    step = told.get("step") if isinstance(told, dict) else None
    return step if isinstance(step, int) else None


def newest_checkpoint(folder: Path) -> LoraSnapshot | None:
    """The newest checkpoint whose files are as they were written; None where none was saved.

    What was cut short since is set aside, and `RunFailure` says so where nothing else is left.
    """
    names = newest_first(folder)
    for name in names:
        damaged = damaged_files(folder / name)
        if not damaged:
            return read_checkpoint(folder / name)
        log.warning("%s is damaged (%s): set aside", folder / name, ", ".join(damaged))
        quarantine(folder / name)
    if names:
        raise RunFailure("disk", f"{folder}: all checkpoints are damaged; delete it to begin anew")
    return None


def read_checkpoint(folder: Path) -> LoraSnapshot:
    """What a checkpoint says of itself."""
    told = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    return LoraSnapshot(folder=folder, step=told["step"], seconds=told["seconds"])


def lay_out(checkpoint: LoraSnapshot, root: Path) -> None:
    """Copy a checkpoint to where ai-toolkit takes up the only files that it finds.

    It would take the newest by ctime, and one optimizer for whichever LoRA that is.
    """
    root.mkdir(parents=True)
    shutil.copyfile(checkpoint.folder / LORA, root / f"{JOB}_{checkpoint.step:09d}.safetensors")
    if (checkpoint.folder / OPTIMIZER).is_file():
        shutil.copyfile(checkpoint.folder / OPTIMIZER, root / OPTIMIZER)


class Collector:
    """Takes over what ai-toolkit saves in `root`, once per file."""

    def __init__(self, root: Path, run: RunFolder, *, keep: int) -> None:
        self._root, self._run, self._keep = root, run, keep
        self._taken = set(_loras(root))

    def new(self) -> list[Path]:
        """Whole LoRA files that came since this was last asked, by their own step."""
        found = [path for path in _loras(self._root) if path not in self._taken]
        return sorted(
            (path for path in found if metadata_step(path) is not None),
            key=lambda path: metadata_step(path) or 0,
        )

    def tidy(self) -> None:
        """Delete what ai-toolkit saved: what counts of it is among the checkpoints by now."""
        for file in (*_loras(self._root), self._root / OPTIMIZER):
            file.unlink(missing_ok=True)

    def pass_over(self, lora: Path) -> None:
        """Leave a file alone, whose optimizer a later save has overwritten."""
        self._taken.add(lora)

    def take(self, lora: Path, *, step: int, seconds: dict[str, float]) -> None:
        """Keep a LoRA and the optimizer beside it as the checkpoint after `step` steps."""
        self._taken.add(lora)
        checkpoints, name = self._run.checkpoints, step_name(step)
        folder = partial_path(checkpoints, name)
        checkpoints.mkdir(exist_ok=True)
        discard_partial(checkpoints)
        folder.mkdir()
        shutil.copyfile(lora, folder / LORA)
        self._take_optimizer(folder)
        replace_file(folder / PROGRESS, json.dumps({"step": step, "seconds": seconds}) + "\n")
        sums = {file.name: file_sum(file) for file in sorted(folder.iterdir())}
        replace_file(folder / SUMS, json.dumps(sums, indent=1) + "\n")
        install(checkpoints, name, keep=self._keep)
        self._show(checkpoints / name / LORA, name)

    def _take_optimizer(self, folder: Path) -> None:
        if (self._root / OPTIMIZER).is_file():
            shutil.copyfile(self._root / OPTIMIZER, folder / OPTIMIZER)
        # A failed save of it is only printed there.
        if not zipfile.is_zipfile(folder / OPTIMIZER):
            (folder / OPTIMIZER).unlink(missing_ok=True)
            log.warning("%s: no whole %s; a resume begins it anew", folder.name, OPTIMIZER)

    def _show(self, lora: Path, name: str) -> None:
        """Let the LoRA stand among those of the run, for whoever draws with it."""
        self._run.lora.mkdir(exist_ok=True)
        partial = self._run.lora / f".{name}.partial"
        shutil.copyfile(lora, partial)
        partial.replace(self._run.lora / f"{name}.safetensors")
        for old in sorted(self._run.lora.glob("step-*.safetensors"))[: -self._keep]:
            old.unlink()


def _loras(root: Path) -> list[Path]:
    return sorted(root.glob(f"{JOB}*.safetensors")) if root.is_dir() else []
