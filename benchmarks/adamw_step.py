"""The CPU time to start a step of AdamW on sharded weights: torch's, over ours on local parts.

    python -m benchmarks.adamw_step [--width 64 --depth 28] [--rounds 25] [--threads 1 --clock cpu]

A DiT of many small matrices under FSDP2, on one rank: the time is that of starting the kernels, as
on a GPU, since there is little to compute. Above 1, torch's takes longer.
"""

import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from benchmarks.interleave import Arm, Stopwatch, conditions, interleave, parser, ratio, report
from configs.load import expect, resolve
from configs.schema import Pretrain
from train.engine.distributed import process_group, read_ranks
from train.engine.ema import EMA
from train.model.build import build_network
from train.pretrain.optimizer import make_optimizer


def main(arguments: list[str]) -> int:
    """Measure and print a report."""
    flags = parser(__doc__, rounds=25)
    flags.set_defaults(width=64, depth=28, heads=2)
    options = flags.parse_args(arguments)
    torch.set_num_threads(options.threads)
    model = {"width": options.width, "depth": options.depth, "heads": options.heads}
    config = expect(resolve({"model": model}, source="benchmark"), Pretrain, source="benchmark")
    device = torch.device("cpu")
    with process_group(read_ranks()):
        network = sharded(config)
        ours = make_optimizer(network, config, EMA(network, decay=None, warmup=False))
        peer = torch.optim.AdamW(network.parameters(), fused=True)
        watch = Stopwatch(clock=options.clock, device=device)
        arms: dict[str, Arm] = {"ours": lambda: ours.step(), "torch": lambda: peer.step()}
        seconds = interleave(arms, rounds=options.rounds, warmup=3, watch=watch)
    found = [ratio("torch's AdamW / ours", seconds["torch"], seconds["ours"])]
    taken = conditions(device=device, options=options)
    report(found, taken=taken, as_json=options.json)
    return 0


def sharded(config: Pretrain) -> nn.Module:
    """Return the network of a config under FSDP2, with gradients."""
    network = build_network(config)
    fully_shard(network)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    return network


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
