"""The state of a training: a network laid out over its ranks, and all that a step changes."""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from runs.folder import RunFolder
from train.data.loader import Microbatch
from train.diffusion.alignment import TokenAlignment, make_alignment, zero_features
from train.diffusion.objective import DiffusionObjective
from train.engine.checkpoint import CheckpointState
from train.engine.clocks import Clocks, region
from train.engine.distributed import Ranks, from_every_rank, from_rank_0
from train.engine.ema import EMA
from train.engine.gradients import clipped_step, squared_gradient_norm
from train.engine.numerics import set_deterministic, set_precision
from train.engine.part import Part
from train.model.parallelize import autocast, can_compile, parallelize
from train.model.routing import first_patches, routed
from train.pretrain.optimizer import make_optimizer
from train.weights.load import InitialNetwork


@dataclass(frozen=True, kw_only=True)
class GradientSummary:
    """The gradient of one step, before clipping, as scalars on the device."""

    squared_norm: Tensor
    norm: Tensor


@dataclass(frozen=True, kw_only=True)
class TrainState:
    """`model` is `network` in its parallel wrapper, with its parameters; `alignment` is REPA's."""

    config: Pretrain
    network: nn.Module
    model: nn.Module
    objective: DiffusionObjective
    optimizer: torch.optim.Optimizer
    ema: EMA
    alignment: TokenAlignment | None = None

    @property
    def parts(self) -> list[Part]:
        """The parts that have state of their own, which a checkpoint holds."""
        return [self.ema, *([self.alignment] if self.alignment else [])]

    def losses(self, batch: Microbatch) -> Tensor:
        """Return the loss of each image, `[B]` float32."""
        features, alignment = batch.features, self.alignment
        extra: dict[str, Any] = {}
        if features is not None and alignment is not None:
            term = functools.partial(alignment.term, features=features)
            extra = {"aligned": alignment.block, "term": term}
        with autocast(self.config.train.precision, batch.image.device):
            return self.objective.losses(
                routed(self.model, batch.keep),
                batch.image,
                batch.noise,
                batch.t,
                batch.label,
                **extra,
            )

    def plain_losses(self, batch: Microbatch) -> Tensor:
        """Return the loss of each image without the term of `repa`, `[B]` float32."""
        with autocast(self.config.train.precision, batch.image.device):
            return self.objective.losses(
                routed(self.model, batch.keep), batch.image, batch.noise, batch.t, batch.label
            )

    def rehearse(self, images: int, *, device: torch.device) -> None:
        """Compile the network by a pass over zeros. Collective."""
        self.losses(zero_batch(self.config, images=images, device=device)).sum().backward()
        self.optimizer.zero_grad(set_to_none=True)

    def update(self, step: int) -> GradientSummary:
        """Take optimizer step `step`, from 1: clip gradients, move the weights and their EMA."""
        with region("optimizer"):
            squared_norm = squared_gradient_norm(self.network)
            if self.alignment:
                squared_norm += self.alignment.sum_gradients()
            norm = squared_norm.sqrt().float()
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate(step)
            clipped_step(self.optimizer, norm, limit=self.config.optimizer.clip)
            self.optimizer.zero_grad(set_to_none=True)
        summary = GradientSummary(squared_norm=squared_norm, norm=norm)
        for part in self.parts:
            part.after_update(step, summary)
        return summary

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of optimizer step `step`, from 1."""
        return self.config.optimizer.rate(step=step, steps=self.config.train.steps)

    def checkpoint_state(self, clocks: Clocks) -> CheckpointState:
        """Return the part of the state that a checkpoint holds, with the run's `clocks`."""
        return CheckpointState(
            network=self.network,
            parts=self.parts,
            optimizer=self.optimizer,
            clocks=clocks,
        )


def make_train_state(
    config: Pretrain, *, layout: BatchLayout, ranks: Ranks, resumes: bool = False
) -> TrainState:
    """Return the first state; with `resumes`, its weights are undefined until they are loaded."""
    set_precision(config.train.precision, ranks.device)
    set_deterministic(config.train.deterministic)
    # All convolutions of a U-Net keep their shapes: cuDNN can time its algorithms once.
    torch.backends.cudnn.benchmark = (
        config.model.family == "unet" and not config.train.deterministic
    )
    initial = InitialNetwork(config)
    network = initial.network
    fill = None if resumes else initial.fill
    model = parallelize(network, config, layout=layout, ranks=ranks, fill=fill)
    alignment, train = make_alignment(config, ranks.device), config.train
    beside = list(alignment.parameters().values()) if alignment else []
    return TrainState(
        config=config,
        network=network,
        model=model,
        objective=DiffusionObjective(config, ranks.device),
        optimizer=make_optimizer(network, config, beside=beside),
        ema=EMA(network, decay=train.ema_decay, warmup=train.ema_warmup),
        alignment=alignment,
    )


def zero_batch(config: Pretrain, *, images: int, device: torch.device) -> Microbatch:
    """Return a microbatch of zeros, for a forward and backward pass whose result is not used."""
    data = config.data
    image = torch.zeros(images, data.channels, data.size, data.size, device=device)
    label = torch.zeros(images, dtype=torch.long, device=device)
    noise = torch.zeros_like(image)  # not `image` again: memory is measured with this batch
    features = zero_features(config, images, device)
    keep = first_patches(config, images, device)
    return Microbatch(
        image=image, noise=noise, t=label.float(), label=label, keep=keep, features=features
    )


def with_compile_resolved(run: RunFolder, config: Pretrain, ranks: Ranks) -> Pretrain:
    """Return the config with `auto` resolved; a resumed run keeps what it had. Collective."""
    if config.train.compile != "auto":
        return config
    known = from_rank_0([e["compile"] for e in run.entries() if "compile" in e])
    compiles = known[0] if known else all(from_every_rank(can_compile(ranks.device)))
    train = config.train.model_copy(update={"compile": compiles})
    return config.model_copy(update={"train": train})
