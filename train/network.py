"""From a config to the network that is trained, alone or as its ranks share it."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from configs.batch import Division
from configs.schema import Pretrain
from train.dist import Ranks, data_mesh
from train.model.dit import DiT


def build_network(config: Pretrain) -> DiT:
    """The network with the weights that `seed` gives, the same on every rank."""
    torch.manual_seed(config.seed)
    model, data = config.model, config.data
    return DiT(
        width=model.width,
        depth=model.depth,
        heads=model.heads,
        patch=model.patch,
        mlp_ratio=model.mlp_ratio,
        qk_norm=model.qk_norm,
        size=data.size,
        channels=data.channels,
        classes=data.classes,
    )


def share(network: DiT, *, division: Division, ranks: Ranks) -> nn.Module:
    """The network as its ranks share it: alone, DDP, or sharded by FSDP2 over the mesh."""
    if division.world == 1:
        return network
    mesh = data_mesh(division, ranks.device)
    if division.shard > 1:
        for block in network.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(network, mesh=mesh)
        return network
    return DistributedDataParallel(
        network,
        device_ids=[ranks.device] if ranks.device.type == "cuda" else None,
        process_group=mesh["replicate"].get_group(),
        gradient_as_bucket_view=True,
    )
