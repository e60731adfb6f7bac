"""The loss on held-out images at fixed times and noises, of the weights and of their EMA."""

import itertools
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from configs.checks.batch import BatchLayout
from configs.errors import DataError
from configs.schema import Pretrain
from configs.schema.objective import Objective
from train.data.loader import Microbatch
from train.data.source import Image, Source, held_out_split
from train.diffusion.rng import validation_noise, validation_order
from train.diffusion.timesteps import Density
from train.engine.distributed import Ranks, data_rank, sum_over_ranks
from train.engine.part import Fields, Part
from train.parts import Pretraining
from train.pretrain.train_state import TrainState, zero_batch


def make(training: Pretraining) -> Part | None:
    """Return the part of `validation`, if it is on."""
    attempt, layout = training.attempt, training.context.layout
    if attempt.config.validation.every is None:
        return None
    loss = HeldOutLoss(training.source, attempt.config, layout=layout, ranks=attempt.ranks)
    return HeldOutEvaluation(loss, training.train_state)


class HeldOutEvaluation(Part):
    """Records the held-out loss of the weights and, if there is one, of their EMA."""

    order = 30

    def __init__(self, loss: "HeldOutLoss", train_state: TrainState) -> None:
        self.every = train_state.config.validation.every
        self._loss, self._train_state = loss, train_state

    def after(self, step: int) -> Fields:
        """Return both losses."""
        fields = {"validation_loss": self._loss.mean(self._train_state)}
        if self._train_state.ema.weights:
            with self._train_state.ema.swapped_in():
                fields["validation_loss_ema"] = self._loss.mean(self._train_state)
        return fields


class HeldOutLoss:
    """The mean loss on held-out images, each at `validation.strata` times with fixed noise.

    The times are the midpoints of equally likely parts of the density that training draws from,
    so the mean estimates the training loss, without the term of `repa`. Images and noise depend
    only on the data set, and the result is the same for any number of ranks.
    """

    def __init__(
        self, source: Source, config: Pretrain, *, layout: BatchLayout, ranks: Ranks
    ) -> None:
        validation, held_out = config.validation, held_out_split(source, config.data)
        if len(held_out) == 0:
            raise DataError(
                f"data.held_out {config.data.held_out} of {len(source)} images keeps none"
            )
        images = validation_order(len(held_out))[: validation.images]
        self._source, self._ranks = held_out, ranks
        self._times = midpoint_times(config.objective, validation.strata)
        self._images = [int(image) for image in images]
        self._begin, self._stride = data_rank(ranks, layout), layout.data_ranks
        self._tensor, self._batch = layout.tensor, layout.micro_batch

    @torch.no_grad()
    def mean(self, train_state: TrainState) -> float:
        """Return the mean over all images and times; each image is read once. Collective."""
        device = self._ranks.device
        total = torch.zeros((), dtype=torch.float64, device=device)
        batches = self._microbatches()
        # Under FSDP every rank must run the model equally often.
        most = len(self._images[:: self._stride]) * len(self._times)
        for _ in range(0, most, self._batch):
            batch = next(batches, None)
            if batch is not None:
                total += train_state.plain_losses(batch.to(device)).sum(dtype=torch.float64)
            else:
                train_state.plain_losses(zero_batch(train_state.config, images=1, device=device))
        return float(sum_over_ranks(total)) / self._tensor / (len(self._images) * len(self._times))

    def _microbatches(self) -> Iterator[Microbatch]:
        """Yield the microbatches of this rank's images, each at every time."""
        examples = self._examples()
        while rows := list(itertools.islice(examples, self._batch)):
            images, noises, times, labels = zip(*rows, strict=True)
            batch = Microbatch(
                image=torch.from_numpy(np.stack(images)),
                noise=torch.from_numpy(np.stack(noises)),
                t=torch.tensor(times, dtype=torch.float32),
                label=torch.tensor(labels),
            )
            yield batch.pin_memory() if self._ranks.device.type == "cuda" else batch

    def _examples(self) -> Iterator[tuple[Image, NDArray[np.float32], float, int]]:
        """Yield image, noise, time and label, for every time of every image of this rank."""
        for index in self._images[self._begin :: self._stride]:
            image, label = self._source[index]
            for k, time in enumerate(self._times):
                yield image, validation_noise(index, k, image.shape), time, label


def midpoint_times(objective: Objective, strata: int) -> list[float]:
    """Return the middle quantiles of `strata` equally likely parts of the density of t."""
    density = Density(objective=objective)
    return [density.quantile((k + 0.5) / strata) for k in range(strata)]
