"""Save checkpoints in child processes that are killed at random moments; check the rest.

Usage: python -m tests.train.kill_saves FOLDER KILLS. Each child resumes from the newest checkpoint,
checks it, and saves in a loop until it is killed. Prints the step of the last checkpoint.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from configs.load import load
from train.engine.checkpoint import CheckpointSaver, CheckpointState, load_newest
from train.engine.checkpoint_files import newest
from train.engine.clocks import Clocks
from train.engine.ema import EMA
from train.model.build import build_network
from train.pretrain.optimizer import make_optimizer


def make_state() -> tuple[CheckpointState, torch.nn.Module]:
    config = load(Path("configs/pretrain/digits.yaml"), ["model.depth=2", "model.width=64"])
    network = build_network(config)
    ema = EMA(network, decay=0.9, warmup=False)
    optimizer = make_optimizer(network, config)
    clocks = Clocks(torch.device("cpu"))
    return CheckpointState(
        network=network,
        parts=[ema],
        optimizer=optimizer,
        clocks=clocks,
    ), network


def child(folder: Path, ready: int) -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    state, network = make_state()
    load_newest(folder, state)
    saver = CheckpointSaver(folder, keep=2)
    while True:
        os.write(ready, b"!")
        # Every tensor holds the step, so a mixture of two saves would show.
        for parameter in network.parameters():
            expected = float(state.step)
            if state.step and not bool((parameter == expected).all()):
                os._exit(3)
            with torch.no_grad():
                parameter.fill_(expected + 1)
        state.step += 1
        state.images = state.step * 8
        saver.save(state)


def main(folder: Path, kills: int) -> None:
    steps = [0]
    for _ in range(kills):
        receiver, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(folder, ready)
        for _ in range(random.randint(1, 4)):
            os.read(receiver, 1)
        time.sleep(0.2 * random.random())  # about what a save takes
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            sys.exit(f"a child exited by itself with {os.WEXITSTATUS(status)}")
        name = newest(folder)
        steps.append(int(name.rpartition("-")[2]) if name else 0)
        if steps[-1] < steps[-2]:
            sys.exit(f"went back from step {steps[-2]} to {steps[-1]}")
    print(steps[-1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
