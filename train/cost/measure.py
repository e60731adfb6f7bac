"""Measure the seconds of a step of a config here, and keep them.

Takes steps of one microbatch and of two in turn for a minute, without data loading, and keeps the
medians by config, GPU and torch; `ditbench plan` then uses them. `ditbench plan --measure` runs
this on the GPUs of the cluster.

Example: torchrun --standalone --nproc-per-node=2 -m train measure configs/pretrain/digits.yaml
"""

import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

from configs.checks.batch import BatchLayout, divide
from configs.errors import ConfigError
from configs.gpus import find_gpu
from configs.load import expect, load
from configs.schema import Pretrain
from configs.terminal import command_parser
from train.cost.step_time import MeasuredStep, keep_measured
from train.engine.distributed import Ranks, from_rank_0, process_group, read_ranks
from train.model.parallelize import can_compile, gradient_sync
from train.pretrain.train_state import TrainState, make_train_state, zero_batch

_WARM_UP = 3


def main(arguments: list[str]) -> int:
    """Carry out the command on every rank; rank 0 keeps the result and prints it."""
    parser = command_parser("train measure", __doc__)
    parser.add_argument("config", type=Path, metavar="CONFIG")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--seconds", type=float, default=60.0, help="time to measure (default: 60)")
    options = parser.parse_args(arguments)
    config = expect(load(options.config, options.overrides), Pretrain, source=options.config)
    if config.train.micro_batch == "auto":
        raise ConfigError("train.micro_batch auto: set the micro batch to measure")
    ranks = read_ranks()
    layout = divide(config, world=ranks.world)
    with process_group(ranks):
        found = measure(config, layout, ranks, seconds=options.seconds)
    if ranks.rank == 0:
        gpu = _gpu(ranks.device)
        keep_measured(config, layout, found, gpu=gpu)
        print(
            f"{gpu}: {found.once_s:.3g} s per step of one microbatch, {found.microbatch_s:.3g} s "
            f"per further one; {found.steps} steps, quartiles {found.spread:.0%} apart"
        )
    return 0


def measure(config: Pretrain, layout: BatchLayout, ranks: Ranks, *, seconds: float) -> MeasuredStep:
    """Return the median seconds of a microbatch and of the rest of a step. Collective."""
    if config.train.compile == "auto":
        train = config.train.model_copy(update={"compile": can_compile(ranks.device)})
        config = config.model_copy(update={"train": train})
    state = make_train_state(config, layout=layout, ranks=ranks)
    for number in range(_WARM_UP):
        _step_s(state, layout, ranks, microbatches=1 + number % 2)
    once, twice = list[float](), list[float]()
    begun = time.perf_counter()
    while from_rank_0(not twice or time.perf_counter() - begun < seconds):
        once.append(_step_s(state, layout, ranks, microbatches=1))
        twice.append(_step_s(state, layout, ranks, microbatches=2))
    microbatch = statistics.median(two - one for one, two in zip(once, twice, strict=True))
    spread = statistics.quantiles(once, n=4) if len(once) > 1 else [once[0]] * 3
    return MeasuredStep(
        once_s=statistics.median(once),
        microbatch_s=microbatch,
        spread=(spread[2] - spread[0]) / spread[1],
        steps=len(once) + len(twice),
    )


def _step_s(state: TrainState, layout: BatchLayout, ranks: Ranks, *, microbatches: int) -> float:
    """Return the seconds of a step of so many microbatches, on this rank."""
    _drain(ranks)
    begun = time.perf_counter()
    for number in range(microbatches):
        with gradient_sync(state.model, last=number == microbatches - 1):
            batch = zero_batch(state.config, images=layout.micro_batch, device=ranks.device)
            state.losses(batch).sum().backward()
    state.update(1)
    _drain(ranks)
    return time.perf_counter() - begun


def _drain(ranks: Ranks) -> None:
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
    elif ranks.world > 1:
        dist.barrier()


def _gpu(device: torch.device) -> str:
    """Return the short name of the GPU, or `cpu`."""
    if device.type != "cuda":
        return "cpu"
    model = torch.cuda.get_device_name(device)
    known = find_gpu(model)
    return known.name if known else model
