"""Evaluation during fine-tuning: the loss at fixed times and noises, and a sample per prompt."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from diffusers import FluxTransformer2DModel
from scipy import stats

from configs.schema import Finetune
from finetune.native.cache import Cache, CaptionedImage, PromptText, latent_name
from finetune.native.lora import without_lora
from finetune.native.loss import LatentBatch, losses
from finetune.native.pipeline import ImagePipeline, save_image
from finetune.native.rng import evaluation_noise, flow_time
from train.engine.attempt import TrainingContext
from train.engine.distributed import Ranks, from_rank_0, sum_over_ranks
from train.engine.part import Part


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
    """The loss on some images, each at `strata` times with `noises` noises.

    The times are the midpoints of equally likely parts of the density that training samples
    from. Images are used at the first of the resolutions.
    """

    def __init__(
        self,
        transformer: FluxTransformer2DModel,
        cache: Cache,
        images: list[CaptionedImage],
        config: Finetune,
        *,
        ranks: Ranks,
    ) -> None:
        self._transformer, self._cache, self._images = transformer, cache, images
        self._config, self._ranks = config, ranks
        self._size = config.data.resolutions[0]
        noises = range(config.validation.noises)
        self._pairs = [(image, noise) for image in range(len(images)) for noise in noises]
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
            for batch in self._batches(*self._pairs[index]):
                loss = losses(self._transformer, batch)
                found[index] += loss[0] / self._config.validation.strata
        return sum_over_ranks(found)

    def _batches(self, image: int, number: int) -> Iterator[LatentBatch]:
        """Yield a batch per time, of one image and its noise `number`."""
        latent, prompt, pooled = self._cache.load_some(
            self._images[image], latent_name(self._size), "prompt", "pooled"
        )
        noise = torch.from_numpy(evaluation_noise(image, number, tuple(latent.shape)))
        times, strata = self._config.train, self._config.validation.strata
        tokens = latent.shape[1] * latent.shape[2] // 4
        for k in range(strata):
            t = flow_time((k + 0.5) / strata, times, tokens=tokens)
            yield LatentBatch(
                latent=latent[None],
                noise=noise[None],
                t=torch.tensor([t], dtype=torch.float32),
                prompt=prompt[None],
                pooled=pooled[None],
            ).to(self._ranks.device)


@dataclass(frozen=True, kw_only=True)
class LoraEvaluator(Part):
    """Evaluates the LoRA. Its methods are collective."""

    context: TrainingContext[Finetune]
    cache: Cache
    prompts: list[str]
    fixed_noise_losses: dict[str, FixedNoiseLoss]
    pipeline: ImagePipeline
    clock: str = "sample"

    def is_due(self, step: int, *, last: bool) -> bool:
        """Return whether the loss or the samples are due after a step, as after the last."""
        return self._is_due(step, self._config.validation.every, self._config.sample.every)

    def after(self, step: int) -> None:
        """Evaluate."""
        self.evaluate()

    def evaluate_if_interrupted(self) -> None:
        """Evaluate if the samples of this step are due but missing: an attempt was killed there.

        Rank 0 decides for all ranks, because on a shared file system others may not see the
        files yet.
        """
        step = self.context.state.step
        due = self._is_due(step, self._config.sample.every)
        if from_rank_0(due and not all(file.is_file() for file in self._samples(step))):
            self.context.clocks.lap("setup", drain=True)
            self.evaluate()

    def evaluate(self) -> None:
        """Record the loss at fixed noises and draw the samples, each if it is due."""
        context, step = self.context, self.context.state.step
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
        sampled = self.pipeline.sample(self.cache.load(PromptText(prompt)), config, seed=seed)
        metadata = {"run": run.name, "step": str(step), "prompt": prompt, "seed": str(seed)}
        save_image(sampled.image, run.prompt_sample(index, step), metadata=metadata)
        return sampled.image_s

    @property
    def _config(self) -> Finetune:
        return self.context.attempt.config

    def _samples(self, step: int) -> list[Path]:
        run = self.context.attempt.run
        return [run.prompt_sample(index, step) for index in range(len(self.prompts))]

    def _is_due(self, step: int, *every: int | None) -> bool:
        """Return whether a step is the first, the last, or a multiple of one of `every`."""
        return step in (0, self._config.train.steps) or any(n and step % n == 0 for n in every)
