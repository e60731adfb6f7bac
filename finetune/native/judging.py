"""What is looked at on the way: the loss on fixed strata, and samples of every prompt."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from configs.run.folder import RunFolder
from configs.schema import Finetune
from finetune.native.base_model import arithmetic
from finetune.native.cache import Cache, PromptText
from finetune.native.lora import ASSISTANT, LEARNED, using
from finetune.native.pipeline import ImagePipeline, ImageSpec, save_image, save_row
from finetune.native.strata import FixedNoiseLoss, LossReduction
from train.engine.distributed import Ranks, from_rank_0


@dataclass(frozen=True, kw_only=True)
class LoraEvaluation:
    """Looks at the LoRA as it stands in the transformer; every rank must ask."""

    config: Finetune
    run: RunFolder
    ranks: Ranks
    cache: Cache
    prompts: list[PromptText]
    strata: FixedNoiseLoss
    painter: ImagePipeline

    def is_due(self, step: int) -> bool:
        """Whether there is something to look at after a step that is not the last."""
        return _falls_on(step, self.config.validation.every) or _falls_on(
            step, self.config.sample.every
        )

    def is_lacking(self, step: int) -> bool:
        """Whether the samples of a step are due and not there: an attempt was killed before them.

        Rank 0 looks for all: on a shared disk others may not see yet what is there.
        """
        due = self._is_due(step, self.config.sample.every)
        return bool(from_rank_0(due and not self._row(step).is_file()))

    def loss_at(self, step: int) -> LossReduction | None:
        """The loss on the strata, where it is due."""
        if not self._is_due(step, self.config.validation.every):
            return None
        with arithmetic(self.ranks.device, self.config.train.precision):
            return self.strata.judge(trained_with=trained_with(self.config), zero=self._without())

    def draw_at(self, step: int) -> dict[str, float]:
        """Draw an image of each prompt, where that is due, and join them in a row.

        What a record tells of those that this rank drew: how many, and in how many seconds.
        """
        if not self._is_due(step, self.config.sample.every):
            return {}
        mine = range(self.ranks.rank, len(self.prompts), self.ranks.world)
        with using(self.painter.transformer, LEARNED, after=trained_with(self.config)):
            seconds = [self._draw(number, step) for number in mine]
        dist.barrier()
        if self.ranks.rank == 0:
            files = [self.run.prompt_sample(n, step) for n in range(len(self.prompts))]
            save_row(files, self._row(step))
        if not seconds:
            return {}
        return {
            "drawn_images": len(seconds),
            "drawn_s": round(sum(seconds), 6),
            "first_image_s": round(seconds[0], 6),
        }

    def _draw(self, number: int, step: int) -> float:
        """Draw and keep the image of one prompt; the seconds that drawing took."""
        asked, text = self.config.sample, self.prompts[number]
        seed = asked.seed + number
        canvas = ImageSpec(
            width=asked.width, height=asked.height, steps=asked.steps, guidance=asked.guidance
        )
        began = time.perf_counter()
        image = self.painter.paint(self.cache.tensors(text), canvas, seed=seed)
        seconds = time.perf_counter() - began
        note = {"run": self.run.name, "step": str(step), "prompt": text.text, "seed": str(seed)}
        save_image(image, self.run.prompt_sample(number, step), note=note)
        return seconds

    def _row(self, step: int) -> Path:
        return self.run.samples / f"step-{step:09d}.png"

    def _is_due(self, step: int, every: int | None) -> bool:
        return step in (0, self.config.train.steps) or _falls_on(step, every)

    def _without(self) -> tuple[str, ...]:
        return tuple(name for name in trained_with(self.config) if name != LEARNED)


def trained_with(config: Finetune) -> tuple[str, ...]:
    """The adapters that count in training."""
    return (LEARNED, ASSISTANT) if config.flux.assistant_lora else (LEARNED,)


def _falls_on(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
