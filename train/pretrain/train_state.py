"""What learns: a network in its layout, and all that an optimizer step needs or changes."""

from dataclasses import dataclass

import torch
from torch import nn

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.diffusion.objective import DiffusionObjective
from train.engine.checkpoint import CheckpointState
from train.engine.clocks import Clocks
from train.engine.distributed import Ranks
from train.engine.ema import EMA, batch_decay
from train.engine.numerics import LossScaler
from train.model.parallelize import parallelize
from train.pretrain.optimizer import make_optimizer
from train.weights.init import initial_network, load_deferred_weights


@dataclass(frozen=True, kw_only=True)
class TrainState:
    """`model` is `network` in its parallel wrapping; they share their parameters."""

    network: nn.Module
    model: nn.Module
    objective: DiffusionObjective
    optimizer: torch.optim.AdamW
    average: EMA
    scale: LossScaler

    def state(self, clocks: Clocks) -> CheckpointState:
        """What a checkpoint holds of it."""
        return CheckpointState(
            network=self.network,
            ema=self.average,
            optimizer=self.optimizer,
            scaler=self.scale,
            clocks=clocks,
        )


def make_train_state(
    config: Pretrain, *, layout: BatchLayout, ranks: Ranks, resumes: bool = False
) -> TrainState:
    """As it is before the first step; one that `resumes` waits for its checkpoint's weights."""
    network = initial_network(config, layout, resumes=resumes)
    model = parallelize(network, config, layout=layout, ranks=ranks)
    if not resumes:
        load_deferred_weights(network, config)
    return TrainState(
        network=network,
        model=model,
        objective=DiffusionObjective(config, ranks.device),
        optimizer=make_optimizer(network, config.optimizer),
        average=EMA(network, decay=batch_decay(config.train), warmup=config.train.ema_warmup),
        scale=LossScaler(fp16=config.train.precision == "fp16"),
    )
