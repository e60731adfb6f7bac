"""Sample the gradient's noise at saved checkpoints.

A sample compares K microbatches of b images each, with times from one bin of t or from all of t.
It depends only on the config, not on the number of ranks that share the microbatches.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import ConfigError
from configs.load import expect
from configs.schema import NoiseRun, Pretrain
from runs.folder import RunFolder
from train.data.catalog import open_source
from train.data.loader import Microbatch
from train.data.source import training_split
from train.diffusion.objective import DiffusionObjective
from train.diffusion.rng import Augmentation, epoch_order, probe_generator
from train.diffusion.timesteps import Bins, Density
from train.engine.checkpoint import load_weights
from train.engine.checkpoint_files import complete
from train.engine.distributed import Ranks, sum_over_ranks
from train.engine.gradients import squared_gradient_norm, sum_gradients
from train.gradient_noise.hooks import make_hook
from train.model.build import build_network
from train.model.parallelize import autocast


@dataclass(frozen=True, kw_only=True)
class NoiseSample:
    """Repetition `repeat` at the checkpoint of `step`, for bin `k` of t (None: all of t)."""

    step: int
    k: int | None
    weight: float
    repeat: int


class OfflineNoise:
    """Measures the samples that a config requests; every rank holds the whole network.

    Raises `ConfigError` if the run lacks a requested step.
    """

    def __init__(self, noise_run: NoiseRun, ranks: Ranks) -> None:
        self._noise_run, self._ranks = noise_run, ranks
        self.config = measured_config(noise_run)
        self._density = Density(objective=self.config.objective)
        self._source = training_split(open_source(self.config.data), self.config.data)
        self.network = build_network(self.config).to(ranks.device)
        self._hook = make_hook(self.network, self.network)
        self._objective = DiffusionObjective(self.config, ranks.device)
        self._loaded: int | None = None

    def samples(self) -> list[NoiseSample]:
        """Return every sample in order: by checkpoint, all of t first, then bin by bin."""
        groups: list[tuple[int | None, float]] = [(None, 1.0)]
        if self._noise_run.bins:
            groups += enumerate(Bins(count=self._noise_run.bins).weights(self._density).tolist())
        return [
            NoiseSample(step=step, k=k, weight=weight, repeat=repeat)
            for step in self._steps()
            for k, weight in groups
            if weight > 0
            for repeat in range(self._noise_run.samples)
        ]

    def measure(self, sample: NoiseSample) -> dict[str, Any]:
        """Return the fields of a sample's record. Collective; needs a process group."""
        self._load(sample.step)
        begin, noise_run = time.perf_counter(), self._noise_run
        small, big = self._sums(sample)
        fields: dict[str, Any] = {
            "checkpoint": sample.step,
            "weight": sample.weight,
            "repeat": sample.repeat,
            "k": noise_run.count,
            "b": noise_run.batch,
            "share": noise_run.share,
            "small": small / noise_run.count,
            "big": big,
            "seconds": round(time.perf_counter() - begin, 6),
        }
        if sample.k is not None:
            low, high = Bins(count=noise_run.bins or 1).edges[sample.k : sample.k + 2].tolist()
            fields |= {"bin": sample.k, "t_low": low, "t_high": high}
        return fields

    def microbatch(self, sample: NoiseSample, turn: int) -> Microbatch:
        """Return microbatch `turn` of a sample: b images, drawn with replacement from the share.

        Microbatches are independent of one another and of the training's microbatches.
        """
        noise_run, data = self._noise_run, self.config.data
        group = 0 if sample.k is None else sample.k + 1
        number = (group * noise_run.samples + sample.repeat) * noise_run.count + turn
        generator = probe_generator(noise_run.seed, sample.step, number)
        indices = self._candidates[generator.integers(len(self._candidates), size=noise_run.batch)]
        u, drop, flip = generator.random((3, noise_run.batch))
        noise = generator.standard_normal(
            (noise_run.batch, data.channels, data.size, data.size), dtype=np.float32
        )
        images, labels = [], []
        for n, index in enumerate(indices.tolist()):
            augmentation = Augmentation(
                flip=bool(data.flip and flip[n] < 0.5),
                seed=noise_run.seed,
                epoch=number * noise_run.batch + n,
                index=index,
            )
            image, label = self._source.augmented(index, augmentation)
            images.append(image)
            labels.append(data.classes if drop[n] < self.config.objective.label_dropout else label)
        return Microbatch(
            image=torch.from_numpy(np.stack(images)),
            noise=torch.from_numpy(noise),
            t=self._times(u, sample.k),
            label=torch.tensor(labels),
        )

    def _times(self, u: NDArray[np.float64], k: int | None) -> Tensor:
        """Return times of the density within bin `k`, or within all of t, for uniform numbers."""
        edges = Bins(count=self._noise_run.bins or 1).edges[k : k + 2] if k is not None else (0, 1)
        low, high = (self._density.cdf(float(edge)) for edge in edges)
        times = np.array([self._density.quantile(low + one * (high - low)) for one in u])
        if k is not None:
            # Bisection ends within rounding of an edge: keep every time out of the next bin.
            times = np.clip(times, edges[0], np.nextafter(np.float32(edges[1]), np.float32(0)))
        return torch.from_numpy(times).float()

    @cached_property
    def _candidates(self) -> NDArray[np.int64]:
        """The indices in the share; a larger share contains every smaller one."""
        size = len(self._source)
        order = epoch_order(self._noise_run.seed, 0, size)
        return order[: max(1, round(self._noise_run.share * size))]

    def _sums(self, sample: NoiseSample) -> list[float]:
        """Return the sum of |g_k|^2, and |g|^2 of their mean."""
        ranks, count = self._ranks, self._noise_run.count
        for turn in range(ranks.rank, count, ranks.world):
            batch = self.microbatch(sample, turn).to(ranks.device)
            losses = self._losses(batch)
            (losses.mean() / count).backward()
            self._hook.after_backward()
        self._hook.restore_gradients()
        sum_gradients(self.network)
        # Equal on every rank, unlike the other sum.
        big = squared_gradient_norm(self.network) / ranks.world
        self.network.zero_grad(set_to_none=True)
        small = self._hook.take_squares() * count**2
        return sum_over_ranks(torch.stack([small, big])).tolist()

    def _losses(self, batch: Microbatch) -> Tensor:
        with autocast(self._noise_run.precision, self._ranks.device):
            return self._objective.losses(
                self.network, batch.image, batch.noise, batch.t, batch.label
            )

    def _steps(self) -> list[int]:
        noise_run = self._noise_run
        saved = [int(name.removeprefix("step-")) for name in complete(self._checkpoints())]
        missing = set(noise_run.steps or ()) - set(saved)
        if missing or not saved:
            raise ConfigError(
                f"run {noise_run.run}: no checkpoint of step {min(missing, default=0)}; there are "
                f"{', '.join(map(str, saved)) or 'none'} (checkpoint.keep is how many are kept)"
            )
        return sorted(noise_run.steps or saved)

    def _load(self, step: int) -> None:
        if self._loaded == step:
            return
        which = self._noise_run.weights
        load_weights(self._checkpoints(), self.network, which=which, step=step)
        self._loaded = step

    def _checkpoints(self) -> Path:
        assert self._noise_run.run is not None
        return RunFolder(Path(self._noise_run.run)).checkpoints


def measured_config(noise_run: NoiseRun) -> Pretrain:
    """Return the config of the run to measure."""
    run = RunFolder(Path(str(noise_run.run)))
    config = expect(run.config(), Pretrain, source=run.path)
    if config.model.routing.kind != "none":
        raise ConfigError("its model.routing is not measured: the gradient would be of all patches")
    return config
