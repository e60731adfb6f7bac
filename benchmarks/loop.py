"""The overhead of the training loop over a bare forward, backward and optimizer step.

    python -m benchmarks.loop [--rounds 20] [--json]

The loop is that of a run: loader, clocks, gradient clipping, schedule, EMA, watchdog, records and
TensorBoard, without checkpoints and samples. After each of its steps comes a bare step of another
network of the same size, on a batch that is already there. DiT-S/2 at 32x32x4, batch 16, fp32.
The ratio is loop / bare.
"""

import contextlib
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from benchmarks.interleave import Arm, Stopwatch, conditions, parser, ratio, report
from configs.load import expect, resolve, to_tree
from configs.schema import Pretrain
from runs.folder import RunFolder, claim_attempt, make_run
from train.engine.distributed import read_ranks
from train.engine.ema import EMA
from train.engine.stop import StopRequest, StopSignals
from train.model.build import build_network
from train.pretrain.optimizer import make_optimizer
from train.pretrain.run import attempt

WARMUP = 2


def main(arguments: list[str]) -> int:
    """Measure and print a report."""
    options = parser(__doc__, rounds=20).parse_args(arguments)
    torch.set_num_threads(options.threads)
    device = read_ranks().device
    tree = {
        "model": {"width": options.width, "depth": options.depth, "heads": options.heads},
        "data": {"source": "dummy", "size": 32, "channels": 4, "classes": 1000},
        "train": {"global_batch": options.batch, "precision": "fp32", "steps": 10**6},
        "checkpoint": {"every": 10**6},
    }
    config = expect(resolve(tree, source="benchmark"), Pretrain, source="benchmark")
    turns = Turns(
        bare=bare_step(config, device),
        watch=Stopwatch(clock=options.clock, device=device),
        rounds=options.rounds,
    )
    run_loop(config, turns)
    counted = slice(WARMUP, WARMUP + options.rounds)
    found = ratio("loop / bare step", turns.loop_s[counted], turns.bare_s[counted])
    report([found], taken=conditions(device=device, options=options), as_json=options.json)
    return 0


def bare_step(config: Pretrain, device: torch.device) -> Arm:
    """Return forward, backward and optimizer step of the network of `config`, and nothing else."""
    network = build_network(config).to(device)
    optimizer = make_optimizer(network, config, EMA(network, decay=None, warmup=False))
    size, batch = config.data.size, config.train.global_batch
    x, target = torch.randn(2, batch, config.data.channels, size, size, device=device)
    t = torch.rand(batch, device=device)
    label = torch.randint(config.data.classes, (batch,), device=device)

    def step() -> None:
        F.mse_loss(network(x, t, label), target).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class Turns:
    """Takes a bare step whenever the loop checks for a stop request."""

    def __init__(self, *, bare: Arm, watch: Stopwatch, rounds: int) -> None:
        self._bare, self._watch, self._rounds = bare, watch, rounds
        self._mark = watch.now()
        self.loop_s: list[float] = []
        self.bare_s: list[float] = []

    def take(self) -> StopRequest:
        """Time the loop's step that has ended and a bare step; return whether to go on."""
        self.loop_s.append(self._watch.now() - self._mark)
        self.bare_s.append(self._watch.time(self._bare))
        self._mark = self._watch.now()
        # LEAVE is the only request that saves nothing.
        return StopRequest.LEAVE if len(self.loop_s) >= WARMUP + self._rounds else StopRequest.GO_ON


def run_loop(config: Pretrain, turns: Turns) -> None:
    """Carry out a run in a temporary folder that alternates with bare steps."""

    class AlternatingSignals(StopSignals):
        def request(self) -> StopRequest:
            return max(super().request(), turns.take())

    with tempfile.TemporaryDirectory() as logs, contextlib.redirect_stdout(sys.stderr):
        run = new_run(config, Path(logs))
        with mock.patch("train.engine.attempt.StopSignals", AlternatingSignals):
            code = attempt(run, number=claim_attempt(run, config))
        logging.shutdown()
    if code:
        raise RuntimeError("the run failed; its log is above")


def new_run(config: Pretrain, logs: Path) -> RunFolder:
    """Make a run folder in `logs`."""
    tree: dict[str, Any] = to_tree(config)
    with mock.patch.dict(os.environ, {"LOGS": str(logs)}):
        return make_run("benchmark", tree)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
