"""Sample the gradient's noise at saved checkpoints.

A sample compares K microbatches of b images each, with times from one bin of t or from all of t.
It depends only on the config, not on the number of ranks that share the microbatches.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from configs.errors import ConfigError
from configs.load import expect, load
from configs.schema import NoiseRun, Pretrain
from configs.schema.objective import Objective
from runs.folder import RunFolder
from train.data.catalog import open_source
from train.data.source import training_split
from train.diffusion.objective import DiffusionObjective
from train.diffusion.timesteps import Bins
from train.engine.checkpoint import load_weights
from train.engine.checkpoint_files import complete
from train.engine.distributed import Ranks
from train.engine.gradients import sum_of_squares
from train.gradient_noise.adaln_gram import AdalnGram, has_adaln
from train.gradient_noise.hooks import AccumulationHook
from train.gradient_noise.microbatches import (
    NoiseMicrobatches,
    Times,
    all_times,
    bin_weights,
    binned_times,
)
from train.model.build import build_network
from train.model.parallelize import autocast
from train.weights.load import load_whole_weights


@dataclass(frozen=True, kw_only=True)
class NoiseSample:
    """Repetition `repeat` at the checkpoint of `step`, for bin `k` of t (None: all of t)."""

    step: int
    k: int | None
    weight: float
    repeat: int


class OfflineNoise:
    """Measures the samples that a config requests; every rank holds the whole network.

    Raises `ConfigError` if the run lacks a requested step, or a config names no weights.
    """

    def __init__(self, noise_run: NoiseRun, ranks: Ranks) -> None:
        self._noise_run, self._ranks = noise_run, ranks
        self.config = measured_config(noise_run)
        self._bins = Bins(count=noise_run.bins) if noise_run.bins else None
        source = training_split(open_source(self.config.data), self.config.data)
        self._microbatches = NoiseMicrobatches(
            source=source,
            config=self.config,
            images=noise_run.batch,
            seed=noise_run.seed,
            share=noise_run.share,
        )
        self._network = build_network(self.config).to(ranks.device)
        self._hook, self._gram = AccumulationHook(self._network), None
        if has_adaln(self._network):
            self._gram = AdalnGram(self._network, bins=Bins(count=1), device=ranks.device)
        self._objective = DiffusionObjective(self.config, ranks.device)
        self._loaded: int | None = None

    def samples(self) -> list[NoiseSample]:
        """Return every sample in order: by checkpoint, all of t first, then bin by bin."""
        return [
            NoiseSample(step=step, k=k, weight=weight, repeat=repeat)
            for step in self._steps()
            for k, weight in self._groups()
            for repeat in range(self._noise_run.samples)
        ]

    def measure(self, sample: NoiseSample) -> dict[str, Any]:
        """Return the fields of a sample's record. Collective; needs a process group."""
        self._load(sample.step)
        begin = time.perf_counter()
        small, big = self._norms(sample).tolist()
        noise_run, adaln = self._noise_run, self._adaln()
        fields: dict[str, Any] = {
            "checkpoint": sample.step,
            "weight": sample.weight,
            "repeat": sample.repeat,
            "k": noise_run.count,
            "b": noise_run.batch,
            "share": noise_run.share,
            "small": small,
            "big": big,
            "seconds": round(time.perf_counter() - begin, 6),
        }
        if sample.k is not None and self._bins:
            low, high = self._bins.edges[sample.k : sample.k + 2].tolist()
            fields |= {"bin": sample.k, "t_low": low, "t_high": high}
        return fields if adaln is None else fields | {"adaln": adaln}

    def _adaln(self) -> dict[str, float] | None:
        """Return the sums of the Gram matrices of the adaLN layers for the same images."""
        if self._gram is None:
            return None
        sums = self._gram.over_all_bins(self._gram.take())
        dist.all_reduce(sums)
        return dict(zip(("products", "pairs", "squares", "counts"), sums.tolist(), strict=True))

    def _steps(self) -> list[int]:
        noise_run = self._noise_run
        if noise_run.run is None:
            return [0]
        saved = [int(name.removeprefix("step-")) for name in complete(self._checkpoints())]
        missing = set(noise_run.steps or ()) - set(saved)
        if missing or not saved:
            raise ConfigError(
                f"run {noise_run.run}: no checkpoint of step {min(missing, default=0)}; there are "
                f"{', '.join(map(str, saved)) or 'none'} (checkpoint.keep is how many are kept)"
            )
        return sorted(noise_run.steps or saved)

    def _groups(self) -> Iterator[tuple[int | None, float]]:
        """Yield all of t and every bin with some density, each with its share of the density."""
        yield None, 1.0
        if self._bins:
            for k, weight in enumerate(bin_weights(self.config, self._bins)):
                if weight > 0:
                    yield k, weight

    def _norms(self, sample: NoiseSample) -> torch.Tensor:
        """Return the mean of |g_k|^2 over all microbatches, and |g|^2, `[2]`."""
        noise_run, ranks = self._noise_run, self._ranks
        times, group = all_times(self.config), 0
        if sample.k is not None and self._bins:
            times, group = binned_times(self.config, self._bins, sample.k), sample.k + 1
        first = (group * noise_run.samples + sample.repeat) * noise_run.count
        for number in range(ranks.rank, noise_run.count, ranks.world):
            self._backward(times, step=sample.step, number=first + number)
            self._hook.after_backward()
        self._hook.restore_gradients()
        small = self._hook.take_squares()
        dist.all_reduce(small)
        whole = torch.cat([_gradient(p).flatten() for p in self._network.parameters()])
        dist.all_reduce(whole)
        self._network.zero_grad(set_to_none=True)
        count = noise_run.count
        return torch.stack([small / count, sum_of_squares([whole]) / count**2])

    def _backward(self, times: Times, *, step: int, number: int) -> None:
        device = self._ranks.device
        batch = self._microbatches.batch(times, step=step, number=number).to(device)
        if self._gram:
            self._gram.before_forward()
        with autocast(self._noise_run.precision, device):
            losses = self._objective.losses(
                self._network, batch.image, batch.noise, batch.t, batch.label
            )
        assert batch.weight is not None
        (losses * batch.weight).mean().backward()
        if self._gram:
            self._gram.after_backward(batch.t, batch.weight, factor=1 / len(losses))

    def _load(self, step: int) -> None:
        if self._loaded == step:
            return
        if self._noise_run.run is None:
            load_whole_weights(self._network, self.config)
        else:
            which = self._noise_run.weights
            load_weights(self._checkpoints(), self._network, which=which, step=step)
        self._loaded = step

    def _checkpoints(self) -> Path:
        assert self._noise_run.run is not None
        return RunFolder(Path(self._noise_run.run)).checkpoints


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def measured_config(noise_run: NoiseRun) -> Pretrain:
    """Return the config to measure, with the times drawn as `noise_run` requests."""
    if noise_run.run is not None:
        run = RunFolder(Path(noise_run.run))
        config = expect(run.config(), Pretrain, source=noise_run.run)
    else:
        path = str(noise_run.config)
        config = expect(load(Path(path), []), Pretrain, source=path)
        if config.model.init_from is None:
            raise ConfigError(f"config {path}: names no weights; set model.init_from to a file")
    times = {
        "sampler": noise_run.sampler,
        "strata": noise_run.strata,
        "bin_shares": noise_run.bin_shares,
    }
    if config.model.routing.kind != "none":
        raise ConfigError("its model.routing is not measured: the gradient would be of all patches")
    objective = Objective(**(config.objective.model_dump() | times))
    return config.model_copy(update={"objective": objective})
