"""Sample the gradient's noise at saved checkpoints.

A sample compares K microbatches of b images each, with times from one bin of t or from all of t.
It depends only on the config, not on the number of ranks that share the microbatches.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from configs.errors import ConfigError
from configs.load import expect, load
from configs.schema import NoiseRun, Pretrain
from configs.schema.objective import Objective
from runs.folder import RunFolder
from train.data.catalog import open_source
from train.data.loader import Microbatch
from train.data.source import training_split
from train.diffusion.objective import DiffusionObjective
from train.diffusion.timesteps import Bins
from train.engine.checkpoint import load_weights
from train.engine.checkpoint_files import complete
from train.engine.distributed import Ranks, sum_over_ranks
from train.gradient_noise.adaln_gram import SUMS, has_adaln
from train.gradient_noise.microbatches import (
    NoiseMicrobatches,
    all_times,
    bin_weights,
    binned_times,
)
from train.gradient_noise.probe import Probe
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
        self._bins = Bins(count=noise_run.bins or 1)
        source = training_split(open_source(self.config.data), self.config.data)
        self._microbatches = NoiseMicrobatches(
            source=source,
            config=self.config,
            images=noise_run.batch,
            seed=noise_run.seed,
            share=noise_run.share,
        )
        self._network = build_network(self.config).to(ranks.device)
        observed = Bins(count=1) if has_adaln(self._network) else None
        self._probe = Probe(self._network, self._network, bins=observed, device=ranks.device)
        self._objective = DiffusionObjective(self.config, ranks.device)
        self._loaded: int | None = None

    def samples(self) -> list[NoiseSample]:
        """Return every sample in order: by checkpoint, all of t first, then bin by bin."""
        groups: list[tuple[int | None, float]] = [(None, 1.0)]
        if self._noise_run.bins:
            groups += enumerate(bin_weights(self.config, self._bins))
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
        found = self._probe.sample(self._batches(sample), self._losses, summed=noise_run.count)
        small, big, *grams = sum_over_ranks(found).tolist()
        fields: dict[str, Any] = {
            "checkpoint": sample.step,
            "weight": sample.weight,
            "repeat": sample.repeat,
            "k": noise_run.count,
            "b": noise_run.batch,
            "share": noise_run.share,
            "small": small / noise_run.count,
            "big": big / self._ranks.world,  # equal on every rank
            "seconds": round(time.perf_counter() - begin, 6),
        }
        if sample.k is not None:
            low, high = self._bins.edges[sample.k : sample.k + 2].tolist()
            fields |= {"bin": sample.k, "t_low": low, "t_high": high}
        return fields | ({"adaln": dict(zip(SUMS, grams, strict=True))} if grams else {})

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

    def _batches(self, sample: NoiseSample) -> Iterator[Microbatch]:
        """Yield this rank's microbatches of a sample, on the device."""
        noise_run, ranks = self._noise_run, self._ranks
        times, group = all_times(self.config), 0
        if sample.k is not None:
            times, group = binned_times(self.config, self._bins, sample.k), sample.k + 1
        first = (group * noise_run.samples + sample.repeat) * noise_run.count
        for number in range(first + ranks.rank, first + noise_run.count, ranks.world):
            batch = self._microbatches.batch(times, step=sample.step, number=number)
            yield batch.to(ranks.device)

    def _losses(self, batch: Microbatch) -> Tensor:
        with autocast(self._noise_run.precision, self._ranks.device):
            losses = self._objective.losses(
                self._network, batch.image, batch.noise, batch.t, batch.label
            )
        assert batch.weight is not None
        return losses * batch.weight

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
