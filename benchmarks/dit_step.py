"""Our training step against diffusers' `DiTTransformer2DModel`: eager, compiled, fp32, bf16.

    python -m benchmarks.dit_step [--only "bf16 compiled"] [--device cuda] [--model xl] [--apart]

The same on both sides: width, depth, heads, patch, tokens, MLP ratio, number of classes, batch,
rectified-flow loss, gradient clipping at 1, fused AdamW with the same settings, autocast, compile
by block, no dropout (nor of labels), weights in float32. Theirs has one more setting, which may
be its best: weights, gradients and optimizer in bf16. The models differ: ours has rotary
positions and normalised queries and keys; theirs has a fixed table of positions, and a timestep
and label embedding in each block. Both use the tanh GELU. In bf16 on a CPU our attention is two
products and a softmax, theirs the flash kernel (`train/model/attention.py`).

A ratio is their time over ours: above 1, ours is faster. "best bf16" compares the bf16 settings
with the smallest median of each side. `--apart` saves memory, but drift no longer cancels.
With `--json` each arm is printed as soon as it is timed, and the ratios last.
"""

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks.interleave import Arm, Stopwatch, conditions, interleave, parser, ratio, report
from benchmarks.peer import diffusers_dit
from configs.load import expect, resolve
from configs.schema import Pretrain
from train.diffusion.objective import DiffusionObjective
from train.engine.gradients import clip_factor, gradient_norm, scale_gradients
from train.model.build import build_network
from train.pretrain.optimizer import make_optimizer

SETTINGS = ("fp32 eager", "fp32 compiled", "bf16 eager", "bf16 compiled")
# Peebles & Xie 2023, table 1.
MODELS = {"s": (384, 12, 6), "b": (768, 12, 12), "l": (1024, 24, 16), "xl": (1152, 28, 16)}
Makers = dict[str, Callable[[], Arm]]
PURE = ("bf16 weights eager", "bf16 weights compiled")


def main(arguments: list[str]) -> int:
    """Measure and print a report."""
    options = parser(__doc__, rounds=10)
    options.add_argument("--device", default="cpu", help="cpu or cuda")
    options.add_argument("--model", choices=MODELS, help="instead of width, depth and heads")
    options.add_argument("--apart", action="store_true", help="hold one arm at a time")
    options.add_argument("--only", choices=SETTINGS, action="append", help="this setting")
    chosen = options.parse_args(arguments)
    if chosen.model:
        chosen.width, chosen.depth, chosen.heads = MODELS[chosen.model]
    torch.set_num_threads(chosen.threads)
    # The compiler warns about features that the machine lacks.
    warnings.simplefilter("ignore")
    settings = chosen.only or list(SETTINGS)
    device = torch.device(chosen.device)
    makers = arms_of(settings, _config(chosen), device)
    watch = Stopwatch(clock=chosen.clock, device=device)
    seconds: dict[str, list[float]] = {}
    for names in [[name] for name in makers] if chosen.apart else [list(makers)]:
        arms = {name: makers[name]() for name in names}
        taken = interleave(arms, rounds=chosen.rounds, warmup=2, watch=watch)
        for name in taken if chosen.json else ():
            print(
                json.dumps({"name": name, "ms": 1e3 * statistics.median(taken[name])}), flush=True
            )
        seconds |= taken
        del arms  # before the next one is made
    ratios = [ratio(name, seconds[f"theirs {name}"], seconds[f"ours {name}"]) for name in settings]
    if any("bf16" in name for name in settings):
        ours, theirs = (_best(seconds, side) for side in ("ours bf16", "theirs bf16"))
        ratios.append(ratio(f"best bf16: {theirs} / {ours}", seconds[theirs], seconds[ours]))
    report(ratios, taken=conditions(device=device, options=chosen), as_json=chosen.json)
    return 0


def _config(chosen: argparse.Namespace) -> Pretrain:
    model = {name: getattr(chosen, name) for name in ("width", "depth", "heads")}
    data = {"source": "dummy", "size": 32, "channels": 4, "classes": 1000}
    train = {"global_batch": chosen.batch}
    tree = {"model": model, "data": data, "train": train}
    return expect(resolve(tree, source="benchmark"), Pretrain, source="benchmark")


def arms_of(settings: list[str], config: Pretrain, device: torch.device) -> Makers:
    """Return what makes a step of both sides for each setting, and of the peer in pure bf16."""
    arms: Makers = {}
    for name in settings:
        arms[f"ours {name}"] = partial(step_of, build_network, name, config, device)
        arms[f"theirs {name}"] = partial(step_of, diffusers_dit, name, config, device)
    for name in PURE:
        if name.replace(" weights", "") in settings:
            arms[f"theirs {name}"] = partial(step_of, diffusers_dit, name, config, device)
    return arms


def step_of(
    build: Callable[[Pretrain], nn.Module], setting: str, config: Pretrain, device: torch.device
) -> Arm:
    """Return a training step of a network in `setting`."""
    dtype = torch.bfloat16 if "weights" in setting else torch.float32
    network = build(config).to(device, dtype)
    if "compiled" in setting:
        for block in cast(Any, network).blocks:
            block.compile()
    batch = _batch(config, device, dtype)
    objective = DiffusionObjective(config, device)
    optimizer = make_optimizer(network, config)
    autocast = setting.startswith("bf16") and dtype is torch.float32

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            losses = objective.losses(network, *batch)
        losses.mean().backward()
        scale_gradients(network, clip_factor(gradient_norm(network), 1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _batch(config: Pretrain, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Return image, noise, t and label."""
    size, batch = config.data.size, config.train.global_batch
    image, noise = torch.randn(2, batch, config.data.channels, size, size)
    label = torch.randint(config.data.classes, (batch,))
    floats = [each.to(device, dtype) for each in (image, noise, torch.rand(batch))]
    return [*floats, label.to(device)]


def _best(seconds: dict[str, list[float]], side: str) -> str:
    """Return the name of a side's arm with the smallest median."""
    of_side = [name for name in seconds if name.startswith(side)]
    return min(of_side, key=lambda name: statistics.median(seconds[name]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
