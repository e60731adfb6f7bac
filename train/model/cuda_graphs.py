"""`train.compile: graphs`: the network's forward and backward pass as one CUDA graph each.

A graph computes at fixed addresses: the next forward pass overwrites the gradients of the last.
"""

from typing import Any

import torch
from torch import nn

from configs.errors import ConfigError

PASSES = 3  # forward and backward, until a step replays: warm-up, recording, a first replay


def record_cuda_graphs(network: nn.Module, device: torch.device) -> None:
    """Compile the network as a whole and replay it; without gradients, run it eagerly."""
    check_cuda_graphs(device)
    eager = network.forward
    # DDP and graph partitions would cut it. The options are otherwise those of reduce-overhead.
    torch._dynamo.config.optimize_ddp = False
    options: dict[str, Any] = {"triton.cudagraphs": True, "graph_partition": False}
    replayed = torch.compile(eager, fullgraph=True, dynamic=False, options=options)

    def forward(*args: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():  # evaluations, whose batches have other shapes
            return eager(*args, **named)
        torch.compiler.cudagraph_mark_step_begin()
        return replayed(*args, **named)

    network.forward = forward


def check_cuda_graphs(device: torch.device) -> None:
    """Raise `ConfigError` if the device has no CUDA graphs."""
    if device.type != "cuda" or torch.version.hip is not None:
        raise ConfigError("train.compile graphs needs an NVIDIA GPU on each rank: set it to auto")


def check_recorded() -> None:
    """Raise `ConfigError` if torch has compiled a pass of this process without recording it."""
    if torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]:
        reason = "torch does not record this network (TORCH_LOGS=cudagraphs says why)"
        raise ConfigError(f"train.compile graphs: {reason}: set it to true")
