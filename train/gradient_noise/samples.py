"""Samples of the gradient's noise over saved checkpoints: which there are, and how one is made.

A sample compares K microbatches of b images each, of one bin of t or of all. It depends on the
config alone, however many ranks share the microbatches.
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
from configs.run.folder import RunFolder
from configs.schema import NoiseRun, Pretrain
from configs.schema.objective import Objective as Asked
from train.data.catalog import open_source
from train.data.source import training_split
from train.diffusion.objective import DiffusionObjective, time_shift
from train.diffusion.timesteps import Bins, Density
from train.engine.checkpoint import load_weights
from train.engine.checkpoint_files import complete
from train.engine.distributed import Ranks
from train.engine.gradients import sum_of_squares
from train.gradient_noise.adaln_gram import AdalnGram, has_adaln
from train.gradient_noise.hooks import AccumulationHook
from train.gradient_noise.microbatches import NoiseMicrobatches, Times, all_times, binned_times
from train.model.build import build_network
from train.model.parallelize import autocast
from train.weights.load import load_whole_weights


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One sample: of the checkpoint of a step, and of bin `k`, None for all of t."""

    step: int
    k: int | None
    weight: float
    repeat: int


class Samples:
    """Makes the samples that a config asks for; every rank holds the whole network.

    `ConfigError` where the run has not the steps asked for, or the config names no weights.
    """

    def __init__(self, asked: NoiseRun, ranks: Ranks) -> None:
        self._asked, self._ranks = asked, ranks
        self.config = config_of_noise(asked)
        self._bins = Bins(count=asked.bins) if asked.bins else None
        source = training_split(open_source(self.config.data), self.config.data)
        self._probe = NoiseMicrobatches(
            source=source,
            config=self.config,
            images=asked.batch,
            seed=asked.seed,
            share=asked.share,
        )
        self._network = build_network(self.config).to(ranks.device)
        self._hook, self._gram = AccumulationHook(self._network), None
        if has_adaln(self._network):
            self._gram = AdalnGram(self._network, bins=Bins(count=1), device=ranks.device)
        self._objective = DiffusionObjective(self.config, ranks.device)
        self._loaded: int | None = None

    def units(self) -> list[Unit]:
        """Every sample, in order: by checkpoint, all of t first, then bin by bin."""
        return [
            Unit(step=step, k=k, weight=weight, repeat=repeat)
            for step in self._steps()
            for k, weight in self._groups()
            for repeat in range(self._asked.samples)
        ]

    def make(self, unit: Unit) -> dict[str, Any]:
        """The fields of a sample's record; all ranks call it, in a process group."""
        self._load(unit.step)
        begin = time.perf_counter()
        small, big = self._norms(unit).tolist()
        asked, adaln = self._asked, self._adaln()
        fields: dict[str, Any] = {
            "checkpoint": unit.step,
            "weight": unit.weight,
            "repeat": unit.repeat,
            "k": asked.count,
            "b": asked.batch,
            "share": asked.share,
            "small": small,
            "big": big,
            "seconds": round(time.perf_counter() - begin, 6),
        }
        if unit.k is not None and self._bins:
            low, high = self._bins.edges[unit.k : unit.k + 2].tolist()
            fields |= {"bin": unit.k, "t_low": low, "t_high": high}
        return fields if adaln is None else fields | {"adaln": adaln}

    def _adaln(self) -> dict[str, float] | None:
        """Sums of the Gram matrices of the adaLN layers for the same images."""
        if self._gram is None:
            return None
        sums = self._gram.over_all_bins(self._gram.take())
        dist.all_reduce(sums)
        return dict(zip(("products", "pairs", "squares", "counts"), sums.tolist(), strict=True))

    def _steps(self) -> list[int]:
        asked = self._asked
        if asked.run is None:
            return [0]
        there = [int(name.removeprefix("step-")) for name in complete(self._folder())]
        missing = set(asked.steps or ()) - set(there)
        if missing or not there:
            raise ConfigError(
                f"run {asked.run}: no checkpoint of step {min(missing, default=0)}; there are "
                f"{', '.join(map(str, there)) or 'none'} (checkpoint.keep says how many stay)"
            )
        return sorted(asked.steps or there)

    def _groups(self) -> Iterator[tuple[int | None, float]]:
        """All of t, and every bin that some of it falls into."""
        yield None, 1.0
        if self._bins:
            density = Density(objective=self.config.objective, shift=time_shift(self.config))
            for k, weight in enumerate(self._bins.weights(density).tolist()):
                if weight > 0:
                    yield k, weight

    def _norms(self, unit: Unit) -> torch.Tensor:
        """The mean of |g_k|^2 over all microbatches, and |g|^2."""
        asked, ranks = self._asked, self._ranks
        times = self._times(unit.k)
        place = (0 if unit.k is None else unit.k + 1) * asked.samples + unit.repeat
        for number in range(ranks.rank, asked.count, ranks.world):
            self._backward(times, step=unit.step, number=place * asked.count + number)
            self._hook.after_backward()
        self._hook.restore_gradients()
        small = self._hook.take_squares()
        dist.all_reduce(small)
        whole = torch.cat([_gradient(p).flatten() for p in self._network.parameters()])
        dist.all_reduce(whole)
        self._network.zero_grad(set_to_none=True)
        return torch.stack([small / asked.count, sum_of_squares([whole]) / asked.count**2])

    def _backward(self, times: Times, *, step: int, number: int) -> None:
        device = self._ranks.device
        batch = self._probe.batch(times, step=step, number=number).to(device)
        if self._gram:
            self._gram.before_forward()
        with autocast(self._asked.precision, device):
            losses = self._objective.losses(
                self._network, batch.image, batch.noise, batch.t, batch.label
            )
        assert batch.weight is not None
        (losses * batch.weight).mean().backward()
        if self._gram:
            self._gram.after_backward(batch.t, batch.weight, factor=1 / len(losses))

    def _times(self, k: int | None) -> Times:
        if k is None or self._bins is None:
            return all_times(self.config)
        return binned_times(self.config, self._bins, k)

    def _load(self, step: int) -> None:
        if self._loaded == step:
            return
        if self._asked.run is None:
            load_whole_weights(self._network, self.config)
        else:
            load_weights(self._folder(), self._network, which=self._asked.weights, step=step)
        self._loaded = step

    def _folder(self) -> Path:
        assert self._asked.run is not None
        return RunFolder(Path(self._asked.run)).checkpoints


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def config_of_noise(asked: NoiseRun) -> Pretrain:
    """The config whose objective, data and network are measured, its times drawn as asked."""
    if asked.run is not None:
        own = expect(RunFolder(Path(asked.run)).config(), Pretrain, source=asked.run)
    else:
        own = expect(load(Path(str(asked.config)), []), Pretrain, source=str(asked.config))
        if own.model.init_from is None:
            raise ConfigError(
                f"config {asked.config}: names no weights; set model.init_from in it to a file"
            )
    drawn = {"sampler": asked.sampler, "strata": asked.strata, "bin_shares": asked.bin_shares}
    objective = Asked(**(own.objective.model_dump() | drawn))
    return own.model_copy(update={"objective": objective})
