"""Three training steps with one micro batch, in a process that may run out of memory.

`train/pretrain/micro_batch.py` starts it on every rank; the verdict goes to a file. Usage:
python -m train.pretrain.micro_batch_trial RUN --attempt N --micro-batch M --verdict FILE
"""

import argparse
import dataclasses
import json
import mmap
import os
import resource
import sys
import threading
import time
from pathlib import Path

import torch

from configs.checks.batch import BatchLayout, divide
from configs.disk import make_private, replace_file
from configs.load import expect
from configs.run.folder import RunFolder
from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.engine.distributed import Ranks, process_group, read_ranks
from train.engine.failure import reason_of
from train.engine.gradients import gradient_norm, scale_gradients
from train.model.parallelize import autocast, gradient_sync
from train.pretrain.train_state import TrainState, make_train_state

# The share of the memory that a micro batch must leave free.
MARGIN = 0.05
# The second step is the first that begins with moments; the third sees what the cache has become.
_STEPS = 3
_LITTLE = 32 * 2**20  # bytes


def main(arguments: list[str]) -> int:
    """Try, and write the verdict; 0 for one that is known."""
    parser = argparse.ArgumentParser(
        prog="python -m train.pretrain.micro_batch_trial", description=__doc__
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--verdict", type=Path, required=True)
    options = parser.parse_args(arguments)
    make_private()
    _end_with_parent()
    run = RunFolder(options.run)
    config = expect(run.config(options.attempt), Pretrain, source=run.path)
    verdict = {"verdict": "fits", "reason": "", "message": ""}
    try:
        ranks = read_ranks()
        _leave_margin(ranks)
        layout = divide(config, world=ranks.world, tuned=options.micro_batch)
        with process_group(ranks):
            _train(config, layout, ranks)
    except Exception as error:
        reason = reason_of(error)
        if _hides_lack_of_memory(error):
            reason = "host_oom"
        verdict["verdict"] = "oom" if reason in ("oom", "host_oom") else "failed"
        verdict |= {"reason": reason, "message": str(error) or type(error).__name__}
        verdict["time"] = str(time.time())
        if verdict["verdict"] == "failed":
            _say(options.verdict, verdict)
            raise
    _say(options.verdict, verdict)
    return 0


def _hides_lack_of_memory(error: Exception) -> bool:
    """Whether oneDNN failed for want of memory, of which it says only that it could not create.

    What the step held is still held by the error's frames: a little more cannot be had either.
    """
    if "could not create a" not in str(error):
        return False
    try:
        mmap.mmap(-1, _LITTLE).close()
    except (OSError, MemoryError):
        return True
    return False


def _say(file: Path, verdict: dict[str, str]) -> None:
    replace_file(file, json.dumps(verdict))
    # At once, and with no word to the others: they may wait in a collective for ever.
    if verdict["verdict"] == "oom":
        os._exit(0)


def _train(config: Pretrain, layout: BatchLayout, ranks: Ranks) -> None:
    """Steps as the training loop takes them, over at most two microbatches each."""
    train_state = make_train_state(config, layout=layout, ranks=ranks)
    few = dataclasses.replace(layout, accumulation=min(layout.accumulation, 2))
    for step in range(1, _STEPS + 1):
        for number in range(few.accumulation):
            with gradient_sync(train_state.model, last=number == few.accumulation - 1):
                _backward(config, train_state, _batch(config, few.micro_batch).to(ranks.device))
        scale_gradients(train_state.network, 1 / (gradient_norm(train_state.network) + 1))
        train_state.optimizer.step()
        train_state.average.update(step)
        train_state.optimizer.zero_grad(set_to_none=True)
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)


def _backward(config: Pretrain, train_state: TrainState, batch: Microbatch) -> None:
    with autocast(config.train.precision, batch.image.device):
        losses = train_state.objective.losses(
            train_state.model, batch.image, batch.noise, batch.t, batch.label
        )
    losses.sum().backward()


def _batch(config: Pretrain, images: int) -> Microbatch:
    data = config.data
    noise = torch.randn(images, data.channels, data.size, data.size)
    return Microbatch(
        image=torch.zeros_like(noise),
        noise=noise,
        t=torch.full((images,), 0.5),
        label=torch.zeros(images, dtype=torch.long),
    )


def _leave_margin(ranks: Ranks) -> None:
    """Let this process have a little less memory than a run would."""
    if ranks.device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(1 - MARGIN, ranks.device)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (int(soft * (1 - MARGIN)), hard))
    group = _control_group_limit()
    if group is not None:
        # Beyond its limit the kernel kills without a word: an allocation is to fail before.
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        mine = int(group * (1 - MARGIN) / ranks.local_world)
        if soft == resource.RLIM_INFINITY or mine < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (mine, hard))


def _control_group_limit(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The smallest memory limit in bytes (cgroup v2) of this process's group and those above."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    mine = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    limits = []
    for folder in (root / mine, *(root / mine).parents):
        file = folder / "memory.max"
        if file.is_file() and (text := file.read_text(encoding="utf-8").strip()).isdigit():
            limits.append(int(text))
    return min(limits, default=None)


def _end_with_parent() -> None:
    """A rank that is killed must not leave a process behind that holds its GPU."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
