"""Saves a tuning: the LoRA as files that others read, and all that a resume needs."""

import hashlib

from configs.schema import Finetune
from finetune.native.lora import Weights, save_lora
from train.engine.attempt import Attempt
from train.engine.checkpoint import CheckpointSaver, TrainingState
from train.engine.checkpoint_files import step_name
from train.engine.distributed import from_every_rank
from train.engine.ema import EMA
from train.engine.failure import RunFailure
from train.engine.metrics import log


class LoraSaver(CheckpointSaver):
    """Writes the LoRA of `weights` and of their average before each checkpoint."""

    def __init__(self, attempt: Attempt[Finetune], weights: Weights, average: EMA) -> None:
        self._attempt, self._weights, self._lora_average = attempt, weights, average
        super().__init__(
            attempt.run.checkpoints,
            keep=attempt.config.checkpoint.keep,
            is_superseded=attempt.is_superseded,
        )

    def save(self, state: TrainingState) -> None:
        """Save both; every rank must. `RunFailure` where ranks hold different weights."""
        self._check_ranks_agree(state.step)
        if self._attempt.ranks.rank == 0:
            self._save_lora(state.step)
        super().save(state)

    def _save_lora(self, step: int) -> None:
        run, weights, file = self._attempt.run, self._weights, f"{step_name(step)}.safetensors"
        note = {"run": run.name, "step": str(step)}
        with self._lora_average.in_place():
            save_lora(weights, run.lora / file, note=note)
        if self._lora_average.average:
            save_lora(weights, run.lora / "raw" / file, note=note)
        for folder in (run.lora, run.lora / "raw"):
            for old in sorted(folder.glob("step-*.safetensors"))[: -self._keep]:
                old.unlink()

    def _check_ranks_agree(self, step: int) -> None:
        """Ranks that hold other weights than rank 0 would train LoRAs of their own."""
        digest = hashlib.sha256()
        for tensor in self._weights.to_save().values():
            digest.update(tensor.numpy().tobytes())
        mine = digest.hexdigest()
        log.info("lora after step %d: %s", step, mine[:16])
        if len(set(from_every_rank(mine))) > 1:
            raise RunFailure("crash", f"ranks hold different weights at step {step}")
