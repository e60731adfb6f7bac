"""What measuring the gradient's noise adds to a training step.

    python -m benchmarks.gns_overhead [--layout accumulate|ddp|fsdp] [--rounds 20] [--json]

Two trainers' steps stand by turns in one process: forward, backward of two microbatches (under
`ddp` and `fsdp`, of one on each of two ranks, started by this command), clipping, optimizer;
once with `gns.enabled` and ten bins, once without. DiT-S/2 at 32x32x4, batch 16 per rank, fp32.
The ratio is with / without. Measurements of the whole model by bins are not in it: they are extra
microbatches, as many as `gns.whole_every` and `gns.whole_repeats` ask for.
"""

import argparse
import os
import subprocess
import sys
from typing import Any

import torch

from benchmarks.interleave import Arm, Stopwatch, conditions, interleave, parser, ratio, report
from configs.checks.batch import BatchLayout, divide
from configs.load import resolve
from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.diffusion.objective import DiffusionObjective
from train.diffusion.timesteps import Bins
from train.engine.distributed import Ranks, process_group, read_ranks
from train.engine.gradients import clip_factor, scale_gradients, squared_gradient_norm
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import make_hook
from train.gradient_noise.online import OnlineNoise
from train.model.build import build_network
from train.model.parallelize import autocast, gradient_sync, parallelize
from train.pretrain.optimizer import make_optimizer

WARMUP = 3
LAYOUTS: dict[str, dict[str, Any]] = {
    "accumulate": {"train": {"micro_batch": 8}},
    "ddp": {},
    "fsdp": {"layout": {"shard": 2}},
}


def main(arguments: list[str]) -> int:
    """Measure and report; under `ddp` and `fsdp` in two ranks that torchrun starts."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    ranks = read_ranks()
    if options.layout != "accumulate" and ranks.world == 1:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        words = [*command, "--nproc-per-node=2", "-m", "benchmarks.gns_overhead", *arguments]
        return subprocess.run(words, check=False, env={**os.environ}).returncode
    with process_group(ranks):
        arms = {name: step_of(options, ranks, measures=name == "with") for name in ("with", "bare")}
        watch = Stopwatch(clock=options.clock, device=ranks.device)
        seconds = interleave(arms, rounds=options.rounds, warmup=WARMUP, watch=watch)
    if ranks.rank == 0:
        found = ratio(f"{options.layout}: with / without", seconds["with"], seconds["bare"])
        taken = conditions(device=ranks.device, options=options)
        report([found], taken=taken | {"precision": options.precision}, as_json=options.json)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    options = parser(__doc__, rounds=20)
    options.add_argument("--layout", choices=LAYOUTS, default="accumulate")
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    return options.parse_args(arguments)


def config_of(options: argparse.Namespace, ranks: Ranks, *, measures: bool) -> Pretrain:
    """The config of an arm, its batch `options.batch` images per rank."""
    asked = LAYOUTS[options.layout]
    micro = {"micro_batch": options.batch // 2} if "train" in asked else {}
    found = resolve(
        {
            "model": {"width": options.width, "depth": options.depth, "heads": options.heads},
            "data": {"source": "dummy", "size": 32, "channels": 4, "classes": 1000},
            "train": {
                "global_batch": options.batch * ranks.world,
                "precision": options.precision,
                **micro,
            },
            "layout": asked.get("layout", {}),
            "gns": {"enabled": measures},
        },
        source="benchmarks.gns_overhead",
    )
    assert isinstance(found, Pretrain)
    return found


def step_of(options: argparse.Namespace, ranks: Ranks, *, measures: bool) -> Arm:
    """An optimizer step on batches that are already there, as the training loop makes it."""
    config = config_of(options, ranks, measures=measures)
    layout = divide(config, world=ranks.world)
    network = build_network(config)
    model = parallelize(network, config, layout=layout, ranks=ranks)
    optimizer = make_optimizer(network, config.optimizer)
    objective = DiffusionObjective(config, ranks.device)
    batch = _batch(config, layout).to(ranks.device)
    share = layout.data_ranks / config.train.global_batch
    noise = None
    if measures:
        gram = AdalnGram(network, bins=Bins(count=10), device=ranks.device)
        noise = OnlineNoise(
            config, hook=make_hook(model, network), gram=gram, whole=None,
            layout=layout, device=ranks.device,
        )  # fmt: skip

    def step() -> None:
        for number in range(layout.accumulation):
            with gradient_sync(model, last=number == layout.accumulation - 1):
                if noise:
                    noise.before_forward()
                with autocast(config.train.precision, ranks.device):
                    losses = objective.losses(model, batch.image, batch.noise, batch.t, batch.label)
                (losses.sum() * share).backward()
                if noise:
                    noise.after_backward(batch, factor=share)
        if noise:
            noise.hook.restore_gradients()
        squares = squared_gradient_norm(network)
        scale_gradients(network, clip_factor(squares.sqrt().float(), config.optimizer.clip))
        if noise:
            noise.finish_step(squares, scale=1.0, counted=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _batch(config: Pretrain, layout: BatchLayout) -> Microbatch:
    data, images = config.data, layout.micro_batch
    noise = torch.randn(2, images, data.channels, data.size, data.size)
    return Microbatch(
        image=noise[0],
        noise=noise[1],
        t=torch.rand(images),
        label=torch.randint(data.classes, (images,)),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
