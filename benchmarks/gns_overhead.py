"""The overhead of measuring gradient noise in a training step.

    python -m benchmarks.gns_overhead [--layout accumulate|ddp|fsdp] [--rounds 20] [--json]

Two training steps alternate in one process: forward and backward of two microbatches (under `ddp`
and `fsdp` of one on each of two ranks, which this command starts), clipping, optimizer; one with
`gns.enabled` and ten bins, one without. DiT-S/2 at 32x32x4, batch 16 per rank, fp32. The ratio is
with / without. It excludes measurements of the whole model by bins, which are extra microbatches,
as many as `gns.whole_every` and `gns.whole_repeats` ask for.
"""

import argparse
import os
import subprocess
import sys
from typing import Any

import torch

from benchmarks.interleave import Arm, Stopwatch, conditions, interleave, parser, ratio, report
from configs.checks.batch import divide
from configs.load import resolve
from configs.schema import Pretrain
from train.diffusion.timesteps import Bins
from train.engine.distributed import Ranks, process_group, read_ranks
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import make_hook
from train.gradient_noise.online import OnlineNoise
from train.model.parallelize import gradient_sync
from train.pretrain.train_state import make_train_state, zero_batch

WARMUP = 3
LAYOUTS: dict[str, dict[str, Any]] = {
    "accumulate": {"train": {"micro_batch": 8}},
    "ddp": {},
    "fsdp": {"layout": {"shard": 2}},
}


def main(arguments: list[str]) -> int:
    """Measure and print a report; start two ranks with torchrun for `ddp` and `fsdp`."""
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
    """Return the config of an arm, with `options.batch` images per rank."""
    keys = LAYOUTS[options.layout]
    micro = {"micro_batch": options.batch // 2} if "train" in keys else {}
    found = resolve(
        {
            "model": {"width": options.width, "depth": options.depth, "heads": options.heads},
            "data": {"source": "dummy", "size": 32, "channels": 4, "classes": 1000},
            "train": {
                "global_batch": options.batch * ranks.world,
                "precision": options.precision,
                "ema_decay": None,
                **micro,
            },
            "layout": keys.get("layout", {}),
            "gns": {"enabled": measures},
        },
        source="benchmarks.gns_overhead",
    )
    assert isinstance(found, Pretrain)
    return found


def step_of(options: argparse.Namespace, ranks: Ranks, *, measures: bool) -> Arm:
    """Return a training step on random batches that are already on the device."""
    config = config_of(options, ranks, measures=measures)
    layout = divide(config, world=ranks.world)
    state = make_train_state(config, layout=layout, ranks=ranks)
    batch = zero_batch(config, images=layout.micro_batch, device=ranks.device)
    for tensor in (batch.image, batch.noise):
        tensor.normal_()
    batch.t.uniform_()
    batch.label.random_(config.data.classes)
    share = layout.data_ranks / config.train.global_batch
    noise = None
    if measures:
        gram = AdalnGram(state.network, bins=Bins(count=10), device=ranks.device)
        hook = make_hook(state.model, state.network)
        noise = OnlineNoise(
            config, hook=hook, gram=gram, whole=None, layout=layout, device=ranks.device
        )

    def step() -> None:
        for number in range(layout.accumulation):
            with gradient_sync(state.model, last=number == layout.accumulation - 1):
                if noise:
                    noise.before_forward()
                (state.losses(batch).sum() * share).backward()
                if noise:
                    noise.after_backward(batch, factor=share)
        if noise:
            noise.hook.restore_gradients()
        gradient = state.update(1)
        if noise:
            noise.finish_step(
                gradient.squared_norm, scale=gradient.scale, counted=gradient.norm.isfinite()
            )

    return step


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
