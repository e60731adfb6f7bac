"""The network a run begins with: drawn by its seed, read from a file, or left to a checkpoint."""

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
    """The whole network before it is laid out.

    Where every weight will be read sharded, it stays on the `meta` device: no rank then ever
    holds all of it.
    """
    later = resumes or _is_read_later(config)
    if later and is_sharded(layout):
        with torch.device("meta"):
            return build_network(config)
    network = build_network(config)
    if config.model.init_from and not later:
        load_whole_weights(network, config)
        log.info("weights of %s", config.model.init_from)
    return network


def load_deferred_weights(network: nn.Module, config: Pretrain) -> None:
    """Read into the laid out network what `start_network` left for later."""
    if _is_read_later(config):
        load_sharded_weights(network, config)
        log.info("weights of %s", config.model.init_from)


def _is_read_later(config: Pretrain) -> bool:
    return config.model.init_from is not None and has_sharded_weights(Path(config.model.init_from))
