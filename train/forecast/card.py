"""Measure this device: what a step is made of, and steps of small networks.

Medians over repeats: matrix products and attention at the shapes of a block, forward and backward;
networks of one and of four blocks; the update of the weights; a copy; kernel launches; a read from
storage; under torchrun also an all-reduce of a bucket. On a CPU it uses the threads that it has.
`--fit` compares finished runs with their forecasts by the cards of the site, and keeps the factor.

Examples: ditbench train card --out card.json; ditbench train card --fit logs
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from configs.checks.batch import divide
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.schema import Pretrain
from configs.terminal import command_parser
from runs.cards import Card, Measured
from train.data.loader import Microbatch
from train.engine.clocks import time_calls
from train.engine.distributed import Ranks, process_group, read_ranks
from train.engine.environment import rank_placement, versions
from train.engine.numerics import set_precision
from train.forecast.fit import fit_runs
from train.forecast.measured import BUCKET_BYTES, HOST_BOUND, step_config
from train.forecast.memory import dit_parameters
from train.model.attention import attend
from train.model.parallelize import DTYPES, can_compile
from train.pretrain.train_state import TrainState, make_train_state, zero_batch

# Tokens of a micro batch, beside those of the networks.
_CPU_TOKENS, _GPU_TOKENS = (256, 1024), (2048, 8192, 32768)
# Width, tokens and images of the networks.
_CPU_STEPS = [(64, 64, 4), (128, 64, 16), (256, 64, 16), (256, 256, 8), (384, 64, 8)]
_GPU_STEPS = [(384, 256, 8), (384, 256, 64), (768, 256, 32), (1152, 256, 16), (1152, 1024, 8)]
_COMPILED_STEPS = [HOST_BOUND, (768, 256, 32)]
# Facts of a rank's placement that a card keeps; clocks are read under load.
_FACTS = ("threads", "gpu_memory_gb", "power_limit_w", "sm_mhz", "max_sm_mhz")


def main(arguments: list[str]) -> int:
    """Carry out the command; return 0."""
    parser = command_parser("train card", __doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, metavar="FILE", help="measure, and write the card")
    what.add_argument("--fit", type=Path, metavar="LOGS", help="fit the finished runs below LOGS")
    parser.add_argument("--least", type=float, default=0.06, metavar="S", help="of a measurement")
    options = parser.parse_args(arguments)
    if options.fit:
        fit = fit_runs(options.fit)
        scatter = f"by their cards; a run scatters by {fit.spread:.1%}"
        print(f"{fit.runs} runs took {fit.factor:.3f} times as long as predicted {scatter}")
        return 0
    ranks = read_ranks()
    with process_group(ranks):
        measured = list(_Meter(ranks, least_s=options.least).all(options.out.parent))
        facts = rank_placement(ranks)
    if ranks.rank == 0:
        card = Card(
            device=facts.get("gpu") or facts["cpu"],
            time=time.time(),
            versions=versions(),
            facts={name: float(facts[name]) for name in _FACTS if name in facts},
            measured=measured,
        )
        replace_file(options.out, card.model_dump_json(indent=1) + "\n")
    return 0


def random_state(config: Pretrain, ranks: Ranks) -> tuple[TrainState, Microbatch]:
    """Return a state and a batch without zeros, on which a GPU at its power limit is faster."""
    layout = divide(config, world=1)
    state = make_train_state(config, layout=layout, ranks=ranks)
    for parameter in state.network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    batch = zero_batch(config, images=layout.micro_batch, device=ranks.device)
    batch.image.normal_(), batch.noise.normal_()
    return state, batch


class _Meter:
    def __init__(self, ranks: Ranks, *, least_s: float) -> None:
        self._ranks, self._device, self._least_s = ranks, ranks.device, least_s
        self._on_gpu = ranks.device.type == "cuda"
        self._steps = [HOST_BOUND, *(_GPU_STEPS if self._on_gpu else _CPU_STEPS)]

    def all(self, folder: Path) -> Iterator[Measured]:
        """Yield every measurement; `folder` is that of the read. Collective."""
        for precision in ("bf16", "fp16", "tf32", "fp32") if self._on_gpu else ("bf16", "fp32"):
            try:
                set_precision(precision, self._device)
            except ConfigError:
                continue  # it only emulates it
            yield from self._products(precision)
            yield from self._attention(precision)
            yield from self._networks(precision, compiled=False)
            if can_compile(self._device) and precision == "bf16":
                yield from self._networks(precision, compiled=True)
        yield from self._machine(folder)

    def _put(
        self, name: Any, shape: tuple[int, ...], call: Callable[[], Any], calls: int = 0, **of: Any
    ) -> Measured:
        device, least_s = self._device, self._least_s
        value, spread = time_calls(call, device=device, least_s=least_s, calls=calls)
        return Measured(name=name, shape=list(shape), value=value, spread=spread, **of)

    def _random(self, *shape: int, precision: str) -> Tensor:
        return torch.randn(shape, device=self._device).to(DTYPES[precision])

    def _products(self, precision: str) -> Iterator[Measured]:
        """Time the products of a block: qkv, out, up, down and the modulation; and a square one."""
        tokens = _GPU_TOKENS if self._on_gpu else _CPU_TOKENS
        side = 8192 if self._on_gpu else 1024
        shapes = {(side, side, side), *((b, 6 * d, d) for d, _, b in self._steps)}
        for d, t, b in self._steps:
            for m in {*tokens, t * b}:
                shapes |= {(m, 3 * d, d), (m, d, d), (m, 4 * d, d), (m, d, 4 * d)}
        for m, n, k in sorted(shapes):
            x, w, y = (self._random(*s, precision=precision) for s in ((m, k), (n, k), (m, n)))

            def step(x: Tensor = x, w: Tensor = w, y: Tensor = y) -> None:
                _ = x @ w.t(), y @ w, y.t() @ x

            yield self._put("product", (m, n, k), step, precision=precision)

    def _attention(self, precision: str) -> Iterator[Measured]:
        shapes = {(b, max(1, d // 64), t, 64) for d, t, b in self._steps}
        most = 16384 if self._on_gpu else 512
        shapes |= {(max(1, most // t), 4, t, c) for t in (16, 64, 256, 1024) for c in (32, 64)}
        for shape in sorted(shapes):
            b, h, t, c = shape
            q, k, v = (
                self._random(b, t, h, c, precision=precision).transpose(1, 2).requires_grad_()
                for _ in range(3)
            )
            gradient = self._random(*shape, precision=precision)

            def step(q: Tensor = q, k: Tensor = k, v: Tensor = v, g: Tensor = gradient) -> None:
                torch.autograd.grad(attend(q, k, v), (q, k, v), g)

            yield self._put("attention", shape, step, precision=precision)

    def _networks(self, precision: str, *, compiled: bool) -> Iterator[Measured]:
        """Time both passes of networks of one and of four blocks, and their updates."""
        of: dict[str, Any] = {"precision": precision, "compiled": compiled}
        for size in _COMPILED_STEPS if compiled else self._steps:
            # A run has one size: a second one would be compiled for any.
            torch._dynamo.reset()
            for depth in (1, 4):
                shape = (*size, depth)
                config = step_config(list(shape), **of)
                state, batch = random_state(config, self._ranks)

                def passes(state: TrainState = state, batch: Any = batch) -> None:
                    for parameter in state.network.parameters():
                        parameter.grad = None
                    state.losses(batch).sum().backward()

                yield self._put("step", shape, passes, **of)
                if precision == "fp32":
                    passes()
                    gradients = [parameter.grad for parameter in state.network.parameters()]

                    def update(state: TrainState = state, gradients: list[Any] = gradients) -> None:
                        pairs = zip(state.network.parameters(), gradients, strict=True)
                        for parameter, gradient in pairs:
                            parameter.grad = gradient
                        state.update(1)

                    yield self._put("update", (dit_parameters(config),), update)

    def _machine(self, folder: Path) -> Iterator[Measured]:
        size = (1 << 30) if self._on_gpu else (64 << 20)
        source, target = torch.ones(2, size // 4, device=self._device)
        yield self._put("copy", (size,), partial(target.copy_, source))
        yield self._put("launch", (1,), partial(torch.ones(1, device=self._device).add_, 1))
        if (world := self._ranks.world) > 1:
            reduce = partial(dist.all_reduce, torch.ones(BUCKET_BYTES // 4, device=self._device))
            shape = (BUCKET_BYTES, world, world // self._ranks.local_world)
            # Every rank must call it equally often.
            yield self._put("all_reduce", shape, reduce, calls=3)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(64 << 20))
            file.flush()
            os.fsync(file.fileno())

            def read() -> None:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                file.seek(0)
                while file.read(1 << 20):
                    pass

            yield self._put("storage", (64 << 20,), read, calls=1)
        if self._on_gpu:
            a = self._random(8192, 8192, precision="fp16")
            for _ in range(400):  # a second of work, under which the caller reads the clocks
                _ = a @ a
