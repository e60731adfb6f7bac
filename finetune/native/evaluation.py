"""Evaluation during fine-tuning: the loss at fixed times and noises, and a sample per prompt."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from diffusers import FluxTransformer2DModel
from scipy import stats

from configs.schema import Finetune
from finetune.native.inputs import CaptionedImage, Encoded, PromptText, latent_name
from finetune.native.lora import without_lora
from finetune.native.loss import LatentBatch, losses
from finetune.native.pipeline import ImagePipeline, save_image
from finetune.native.rng import evaluation_noise, evaluation_times
from train.engine.attempt import TrainingContext
from train.engine.distributed import Ranks, sum_over_ranks
from train.engine.part import Part

# Draws of noise for each image.
_NOISES = 2


@dataclass(frozen=True, kw_only=True)
class LossReduction:
    """The mean loss with and without the LoRA, and the mean difference with a 95 % interval.

    The interval is over pairs of image and noise, each averaged over the times. The same pairs
    are used with and without the LoRA.
    """

    loss: float
    loss_zero: float
    gain: float
    gain_95: float

    def fields(self, of: str) -> dict[str, float]:
        """Return the fields of a record, each beginning with `of`."""
        return {f"{of}_{name}": value for name, value in vars(self).items()}


class FixedNoiseLoss:
    """The loss on some images at fixed times, each with two fixed noises.

    Images are used at the first of the resolutions.
    """

    def __init__(
        self,
        transformer: FluxTransformer2DModel,
        encoded: Encoded,
        images: list[CaptionedImage],
        config: Finetune,
        *,
        ranks: Ranks,
    ) -> None:
        self._transformer, self._encoded, self._images = transformer, encoded, images
        self._size, self._ranks = config.data.resolutions[0], ranks
        self._pairs = [(image, noise) for image in range(len(images)) for noise in range(_NOISES)]
        self._zero: torch.Tensor | None = None

    def evaluate(self) -> LossReduction:
        """Compare the loss with the LoRA to that without it. Collective."""
        if self._zero is None:
            with without_lora(self._transformer):
                self._zero = self._losses()
        losses = self._losses()
        gains = (self._zero - losses).tolist()
        gain, spread = stats.tmean(gains), stats.sem(gains) if len(gains) > 1 else float("nan")
        return LossReduction(
            loss=losses.mean().item(),
            loss_zero=self._zero.mean().item(),
            gain=float(gain),
            gain_95=float(spread * stats.t.ppf(0.975, max(1, len(gains) - 1))),
        )

    @torch.no_grad()
    def _losses(self) -> torch.Tensor:
        """Return the loss of each pair of image and noise, summed over ranks, `[pairs]`."""
        found = torch.zeros(len(self._pairs), dtype=torch.float64, device=self._ranks.device)
        for index in range(self._ranks.rank, len(self._pairs), self._ranks.world):
            batches = self._batches(*self._pairs[index])
            for batch in batches:
                found[index] += losses(self._transformer, batch)[0] / len(batches)
        return sum_over_ranks(found)

    def _batches(self, image: int, number: int) -> list[LatentBatch]:
        """Return a batch per time, of one image and its noise `number`."""
        encoded = self._encoded[self._images[image]]
        latent = encoded[latent_name(self._size)]
        noise = torch.from_numpy(evaluation_noise(image, number, tuple(latent.shape)))
        return [
            LatentBatch(
                latent=latent[None],
                noise=noise[None],
                t=torch.tensor([t], dtype=torch.float32),
                prompt=encoded["prompt"][None],
                pooled=encoded["pooled"][None],
            ).to(self._ranks.device)
            for t in evaluation_times()
        ]


@dataclass(frozen=True, kw_only=True)
class LoraEvaluator(Part):
    """Evaluates the LoRA. Its methods are collective."""

    context: TrainingContext[Finetune]
    encoded: Encoded
    prompts: list[str]
    fixed_noise_losses: dict[str, FixedNoiseLoss]
    pipeline: ImagePipeline
    clock: str = "sample"

    def is_due(self, step: int, *, last: bool) -> bool:
        """Return whether the loss or the samples are due after a step, as after the last."""
        return self._is_due(step, self._config.validation.every, self._config.sample.every)

    def begin(self) -> None:
        """Evaluate before the first step."""
        if self.context.state.step == 0:
            self.context.clocks.lap("setup", drain=True)
            self.after(0)

    def after(self, step: int) -> None:
        """Record the loss at fixed noises and draw the samples, each if it is due."""
        context = self.context
        if self._is_due(step, self._config.validation.every):
            found: dict[str, float] = {}
            for name, fixed_noise_loss in self.fixed_noise_losses.items():
                found |= fixed_noise_loss.evaluate().fields(name)
            context.clocks.lap("eval", drain=True)
            context.metrics.evaluation(context.at | found)
            context.metrics.event("evaluated", **context.at)
        if self._is_due(step, self._config.sample.every):
            fields = self._sample_prompts(step)
            context.clocks.lap("sample", drain=True)
            if fields:
                context.metrics.evaluation(context.at | fields)

    def _sample_prompts(self, step: int) -> dict[str, float]:
        """Sample each prompt, shared among ranks.

        Return the number and times of the images that this rank sampled, as fields of a record.
        """
        ranks = self.context.attempt.ranks
        mine = range(ranks.rank, len(self.prompts), ranks.world)
        seconds = [self._sample_prompt(index, step) for index in mine]
        # No rank goes on before all images are there: another attempt would make them again.
        dist.barrier()
        if not seconds:
            return {}
        return {
            "drawn_images": len(seconds),
            "drawn_s": round(sum(seconds), 6),
            "first_image_s": round(seconds[0], 6),
        }

    def _sample_prompt(self, index: int, step: int) -> float:
        """Sample and save the image of one prompt; return the seconds that sampling took."""
        run, config, prompt = self.context.attempt.run, self._config.sample, self.prompts[index]
        seed = config.seed + index
        sampled = self.pipeline.sample(self.encoded[PromptText(prompt)], config, seed=seed)
        metadata = {"run": run.name, "step": str(step), "prompt": prompt, "seed": str(seed)}
        save_image(sampled.image, run.prompt_sample(index, step), metadata=metadata)
        return sampled.image_s

    @property
    def _config(self) -> Finetune:
        return self.context.attempt.config

    def _is_due(self, step: int, *every: int | None) -> bool:
        """Return whether a step is the first, the last, or a multiple of one of `every`."""
        return step in (0, self._config.train.steps) or any(n and step % n == 0 for n in every)
