"""The network that a run starts with: random by its seed, or with the weights of a file or run."""

from pathlib import Path

import torch
from torch import nn

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.engine.metrics import log
from train.model.build import build_network
from train.model.parallelize import is_sharded
from train.weights.load import has_sharded_weights, load_sharded_weights, load_whole_weights


def initial_network(config: Pretrain, layout: BatchLayout, *, resumes: bool) -> nn.Module:
    """Return the whole network, before it is distributed over ranks.

    If its weights will be loaded sharded, it stays on the `meta` device, so that no rank ever
    holds all of them.
    """
    deferred = resumes or _is_deferred(config)
    if deferred and is_sharded(layout):
        with torch.device("meta"):
            return build_network(config)
    network = build_network(config)
    if config.model.init_from and not deferred:
        load_whole_weights(network, config)
        log.info("loaded weights of %s", config.model.init_from)
    return network


def load_deferred_weights(network: nn.Module, config: Pretrain) -> None:
    """Load the sharded weights of `model.init_from`, if any, into the distributed network."""
    if _is_deferred(config):
        load_sharded_weights(network, config)
        log.info("loaded weights of %s", config.model.init_from)


def _is_deferred(config: Pretrain) -> bool:
    return config.model.init_from is not None and has_sharded_weights(Path(config.model.init_from))
