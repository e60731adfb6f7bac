"""Evaluations during a pretraining: held-out loss, gradient noise, samples and their distances."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from configs.checks.batch import BatchLayout
from configs.errors import DataError
from configs.schema import Pretrain
from configs.schema.objective import Objective
from runs.folder import RunFolder
from train.data.latents.store import read_index
from train.data.latents.vae import decode_samples, open_decoder
from train.data.loader import Microbatch, ahead
from train.data.source import Image, Source, held_out_split
from train.diffusion.objective import time_shift
from train.diffusion.rng import flow_time, sample_label, validation_noise, validation_order
from train.engine.attempt import TrainingContext
from train.engine.distributed import Ranks, data_rank, sum_over_ranks
from train.engine.metrics import log
from train.engine.profiler import region
from train.evaluate.fid import compare
from train.evaluate.fid_features import features_of, open_features
from train.evaluate.fid_reference import reference_statistics
from train.evaluate.sampler import grid_labels, sample, sampler_facts, save_grid, to_pixels
from train.gradient_noise.online import OnlineNoise
from train.model.parallelize import autocast
from train.pretrain.train_state import TrainState, zero_batch


class FidEvaluation:
    """The features and the reference of `evaluate.fid`, and the `labels` `[num]` to draw.

    Collective: rank 0 computes the reference's statistics. Raises `ConfigError` or `DataError` if
    the features, the reference or the VAE are missing.
    """

    def __init__(self, config: Pretrain, run: RunFolder, *, ranks: Ranks) -> None:
        keys, self._config, self._ranks = config.evaluate.fid, config, ranks
        file = Path(keys.features) if keys.features else None
        self._features = open_features(file, device=ranks.device, digits=config.data)
        self._reference = Path(keys.reference or run.path)
        labels = [sample_label(config.seed, i, config.data.classes) for i in range(keys.num)]
        self.labels, side = torch.tensor(labels), config.data.size
        if open_decoder(config) is not None:
            side = read_index(Path(str(config.data.path))).images.size
        if ranks.rank == 0:
            self._statistics = reference_statistics(
                self._reference, self._features, side=side, batch=64
            )
        dist.barrier()

    def features(self, images: Tensor) -> Tensor:
        """Return the features `[n, d]` of samples `[n, C, H, W]`, which may be latents."""
        device = self._ranks.device
        # Statistics of a reference are not of autocast's precision either.
        with torch.autocast(device.type, enabled=False):
            pixels = to_pixels(decode_samples(images.float(), self._config, device=device))
            return torch.from_numpy(features_of(pixels, self._features))

    def fields(self, features: Tensor, *, weights: str) -> dict[str, Any]:
        """Return the record of the features `[num, d]` of the samples; on rank 0 only."""
        facts = {"weights": weights, "labels": "random", "seed": self._config.seed}
        facts |= {"reference": str(self._reference.absolute())} | sampler_facts(self._config)
        return compare(features.numpy(), self._statistics, self._features, facts=facts)


@dataclass(frozen=True, kw_only=True)
class PretrainEvaluator:
    """Evaluates `train_state`; what the config turns off is None."""

    context: TrainingContext[Pretrain]
    train_state: TrainState
    held_out: "HeldOutLoss | None"
    noise: OnlineNoise | None
    fid: FidEvaluation | None

    def due_evaluations(self, step: int) -> list[Callable[[], None]]:
        """Return the evaluations that are due after a step, in order; after the last, all."""
        config = self.context.attempt.config
        last = step == config.train.steps
        due: list[Callable[[], None]] = []
        if self.held_out and _is_due(step, config.validation.every, last):
            due.append(self.validate)
        if self.noise and self.noise.whole and _is_due(step, config.gns.whole_every, last):
            due.append(self.measure_noise)
        if self.fid and _is_due(step, config.evaluate.fid.every, last):
            due.append(self.measure_fid)
        if _is_due(step, config.sample.every, last):
            due.append(self.draw_samples)
        return due

    def validate(self) -> None:
        """Record the held-out loss of the weights and of their EMA."""
        assert self.held_out is not None
        context, train_state = self.context, self.train_state
        fields = {"validation_loss": self.held_out.mean(train_state)}
        if train_state.ema.weights:
            with train_state.ema.swapped_in():
                fields["validation_loss_ema"] = self.held_out.mean(train_state)
        context.clocks.lap("eval", drain=True)
        context.metrics.evaluation(context.at | fields)
        context.metrics.event("evaluated", step=context.state.step)

    def measure_noise(self) -> None:
        """Record the gradient noise of the whole model, bin by bin."""
        assert self.noise is not None
        assert self.noise.whole is not None
        context, step = self.context, self.context.state.step
        found = self.noise.whole.measure(step, scale=self.train_state.scaler.scale.item())
        context.clocks.lap("eval", drain=True)
        if found is None:
            log.warning("step %d: a gradient norm is not finite; noise not recorded", step)
            return
        context.metrics.measurement(context.at | {"gns_whole": found})
        context.metrics.event("evaluated", step=step)

    def measure_fid(self) -> None:
        """Record the distances of samples from the reference."""
        assert self.fid is not None
        context, weights = self.context, "ema" if self.train_state.ema.weights else "model"
        features = self._sample(self.fid.labels, then=self.fid.features)
        if features is not None:
            fields = self.fid.fields(features, weights=weights)
            context.metrics.measurement(context.at | fields)
            log.info("step %d: FID %.4f", context.state.step, fields["fid"])
        context.clocks.lap("eval", drain=True)
        context.metrics.event("evaluated", step=context.state.step)

    def draw_samples(self) -> None:
        """Draw a grid of samples from the EMA of the weights."""
        context, attempt = self.context, self.context.attempt
        images = self._sample(grid_labels(attempt.config), then=Tensor.cpu)
        if images is not None:
            file = attempt.run.samples / f"step-{context.state.step:09d}.png"
            pixels = decode_samples(images, attempt.config, device=attempt.ranks.device)
            save_grid(pixels, file, columns=attempt.config.sample.per_class)
        context.clocks.lap("sample", drain=True)

    def _sample(self, labels: Tensor, *, then: Callable[[Tensor], Tensor]) -> Tensor | None:
        """Draw from the EMA of the weights, as `sample` does."""
        train_state, attempt = self.train_state, self.context.attempt
        precision = autocast(attempt.config.train.precision, attempt.ranks.device)
        with region("sample"), train_state.ema.swapped_in(), precision:
            return sample(
                train_state.network,
                train_state.objective,
                labels,
                attempt.config,
                layout=self.context.layout,
                ranks=attempt.ranks,
                then=then,
            )


def _is_due(step: int, every: int | None, last: bool) -> bool:
    return last or (every is not None and step % every == 0)


class HeldOutLoss:
    """The mean loss on held-out images, each at `validation.strata` times with fixed noise.

    The times are the midpoints of equally likely parts of the density that training draws from,
    so the mean estimates the training loss, without `objective.extra`. Images and noise depend only
    on the data set, and the result is the same for any number of ranks.
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
        self._times = midpoint_times(config.objective, validation.strata, shift=time_shift(config))
        self._images = [int(image) for image in images]
        self._begin, self._stride = data_rank(ranks, layout), layout.data_ranks
        self._tensor, self._batch = layout.tensor, layout.micro_batch

    @torch.no_grad()
    def mean(self, train_state: TrainState) -> float:
        """Return the mean over all images and times; each image is read once. Collective."""
        device = self._ranks.device
        total = torch.zeros((), dtype=torch.float64, device=device)
        batches = ahead(self._microbatches(), device=device)
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


def midpoint_times(objective: Objective, strata: int, *, shift: float) -> list[float]:
    """Return the middle quantiles of `strata` equally likely parts of the density of t."""
    middles = [(k + 0.5) / strata for k in range(strata)]
    normal = NormalDist()
    return [flow_time(u, normal.inv_cdf(u), objective, shift=shift) for u in middles]
