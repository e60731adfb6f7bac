"""The loss at fixed times with fixed noise, beside that of no LoRA: what has been learned."""

from dataclasses import dataclass

import torch
from diffusers import FluxTransformer2DModel
from scipy import stats

from configs.schema import Finetune
from finetune.native.cache import Cache, CaptionedImage, latent_name
from finetune.native.draws import flow_time, stratum_noise
from finetune.native.lora import using
from finetune.native.loss import LatentBatch, losses
from train.engine.distributed import Ranks, sum_over_ranks


@dataclass(frozen=True, kw_only=True)
class LossReduction:
    """The mean loss, that of no LoRA, and by how much it is lower, with a 95 % interval.

    The interval is over pairs of image and noise, each a mean over the strata: the same pairs
    with and without the LoRA.
    """

    loss: float
    loss_zero: float
    gain: float
    gain_95: float

    def fields(self) -> dict[str, float]:
        """As fields of a record."""
        return {f"validation_{name}": value for name, value in vars(self).items()}


class FixedNoiseLoss:
    """Judges the LoRA on the training images, each at `strata` times with `noises` noises.

    The times are the middles of equally likely parts of the density that training draws from;
    the images are seen at the first of the resolutions.
    """

    def __init__(
        self,
        transformer: FluxTransformer2DModel,
        cache: Cache,
        examples: list[CaptionedImage],
        config: Finetune,
        *,
        ranks: Ranks,
    ) -> None:
        self._transformer, self._cache, self._examples = transformer, cache, examples
        self._config, self._ranks = config, ranks
        asked = config.validation
        self._pairs = [(i, k) for i in range(len(examples)) for k in range(asked.noises)]
        self._zero: torch.Tensor | None = None

    def judge(self, *, trained_with: tuple[str, ...], zero: tuple[str, ...]) -> LossReduction:
        """With the adapters of training, and with those of no LoRA; every rank must ask."""
        if self._zero is None:
            with using(self._transformer, *zero, after=trained_with):
                self._zero = self._losses()
        with using(self._transformer, *trained_with, after=trained_with):
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
        """The loss of each pair of image and noise, of all ranks, `[pairs]`."""
        found = torch.zeros(len(self._pairs), dtype=torch.float64, device=self._ranks.device)
        for number in range(self._ranks.rank, len(self._pairs), self._ranks.world):
            for t in self._times(number):
                loss = losses(self._transformer, self._batch(number, t))
                found[number] += loss[0] / self._config.validation.strata
        return sum_over_ranks(found).cpu()

    def _times(self, number: int) -> list[float]:
        strata = self._config.validation.strata
        _, height, width = self._shape(number)
        return [
            flow_time((k + 0.5) / strata, self._config.train.timesteps, tokens=height * width // 4)
            for k in range(strata)
        ]

    def _shape(self, number: int) -> tuple[int, ...]:
        return self._cache.shape(self._examples[self._pairs[number][0]], self._name())

    def _name(self) -> str:
        return latent_name(self._config.data.resolutions[0])

    def _batch(self, number: int, t: float) -> LatentBatch:
        image, noise = self._pairs[number]
        latent, prompt, pooled = self._cache.part(
            self._examples[image], self._name(), "prompt", "pooled"
        )
        drawn = torch.from_numpy(stratum_noise(image, noise, tuple(latent.shape)))
        parts = {"latent": latent, "noise": drawn, "prompt": prompt, "pooled": pooled}
        parts["t"] = torch.tensor(t, dtype=torch.float32)
        return LatentBatch(**{name: part[None] for name, part in parts.items()}).to(
            self._ranks.device
        )
