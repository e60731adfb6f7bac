"""The loss on held-out images at fixed times with fixed noise: the same question at every step."""

from statistics import NormalDist

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from configs.schema.objective import Objective as Asked
from train.data.source import Source
from train.diffusion.objective import DiffusionObjective, time_shift
from train.diffusion.rng import flow_time, validation_noise, validation_order
from train.engine.distributed import Ranks, data_rank


class HeldOutLoss:
    """Judges a network on `images` held-out images, each at `strata` times.

    The times are the middles of equally likely parts of the training's density, so that the
    mean estimates the training loss; images and noise depend on the data set alone. The answer
    is the same for any number of ranks.
    """

    def __init__(
        self, source: Source, config: Pretrain, *, layout: BatchLayout, ranks: Ranks
    ) -> None:
        asked = config.validation
        images = validation_order(len(source))[: asked.images]
        self._source, self._ranks = source, ranks
        self._times = times(config.objective, asked.strata, shift=time_shift(config))
        self._pairs = [(int(image), k) for image in images for k in range(asked.strata)]
        self._begin, self._stride = data_rank(ranks, layout), layout.data_ranks
        self._tensor, self._batch = layout.tensor, layout.micro_batch

    def loss(self, network: nn.Module, objective: DiffusionObjective) -> float:
        """The mean loss over all images and times, of all ranks; every rank must ask."""
        total = torch.zeros((), dtype=torch.float64, device=self._ranks.device)
        mine = self._pairs[self._begin :: self._stride]
        # Under FSDP every rank must call the network equally often.
        most = len(self._pairs[:: self._stride])
        for begin in range(0, most, self._batch):
            pairs = mine[begin : begin + self._batch]
            losses = self._losses(network, objective, pairs or self._pairs[:1])
            total += losses[: len(pairs)].sum(dtype=torch.float64)
        dist.all_reduce(total)
        return float(total) / self._tensor / len(self._pairs)

    @torch.no_grad()
    def _losses(
        self, network: nn.Module, objective: DiffusionObjective, pairs: list[tuple[int, int]]
    ) -> torch.Tensor:
        examples = [self._source[image] for image, _ in pairs]
        noises = [
            validation_noise(image, k, examples[n][0].shape) for n, (image, k) in enumerate(pairs)
        ]
        arrays = (np.stack([image for image, _ in examples]), np.stack(noises))
        image, noise = (torch.from_numpy(array).to(self._ranks.device) for array in arrays)
        t = torch.tensor([self._times[k] for _, k in pairs], dtype=torch.float32)
        label = torch.tensor([label for _, label in examples])
        device = self._ranks.device
        return objective.losses(network, image, noise, t.to(device), label.to(device))


def times(asked: Asked, strata: int, *, shift: float) -> list[float]:
    """The middle quantiles of `strata` equally likely parts of the density of t."""
    middles = [(k + 0.5) / strata for k in range(strata)]
    normal = NormalDist()
    return [flow_time(u, normal.inv_cdf(u), asked, shift=shift) for u in middles]
