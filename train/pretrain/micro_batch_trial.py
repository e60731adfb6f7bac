"""Take three training steps with one micro batch, in a process that may run out of memory.

`train/pretrain/micro_batch_search.py` starts it on every rank; the verdict goes to a file. Usage:
python -m train.pretrain.micro_batch_trial RUN --attempt N --micro-batch M --verdict FILE
"""

import argparse
import json
import mmap
import os
import resource
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

import torch

from configs.checks.batch import BatchLayout, divide
from configs.disk import make_private, replace_file
from configs.load import expect
from configs.schema import Pretrain
from runs.folder import RunFolder
from train.engine.distributed import Ranks, process_group, read_ranks
from train.engine.failure import reason_of
from train.model.parallelize import gradient_sync
from train.pretrain.train_state import make_train_state, with_compile_resolved, zero_batch

# The share of memory that a micro batch must leave free.
MARGIN = 0.05
# The second step is the first with AdamW's moments; the third runs with a settled allocator cache.
_STEPS = 3
_PROBE_BYTES = 32 * 2**20


def main(arguments: list[str]) -> NoReturn:
    """Try the micro batch, write the verdict and exit: with 0 if it is known."""
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
            _train(with_compile_resolved(run, config, ranks), layout, ranks)
    except Exception as error:
        reason = reason_of(error)
        if _hides_lack_of_memory(error):
            reason = "host_oom"
        verdict["verdict"] = "oom" if reason in ("oom", "host_oom") else "failed"
        verdict |= {"reason": reason, "message": str(error) or type(error).__name__}
        verdict["time"] = str(time.time())
        traceback.print_exc()
    replace_file(options.verdict, json.dumps(verdict))
    # Exit without closing the process group: other ranks may hang in a collective.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(verdict["verdict"] == "failed")


def _hides_lack_of_memory(error: Exception) -> bool:
    """Return whether oneDNN failed for lack of memory; it only says what it could not create.

    The error's frames still hold the memory of the step, so even a small allocation fails.
    """
    if "could not create a" not in str(error):
        return False
    try:
        mmap.mmap(-1, _PROBE_BYTES).close()
    except (OSError, MemoryError):
        return True
    return False


def _train(config: Pretrain, layout: BatchLayout, ranks: Ranks) -> None:
    """Take a few training steps, each over at most two microbatches."""
    train_state = make_train_state(config, layout=layout, ranks=ranks)
    accumulation = min(layout.accumulation, 2)
    for step in range(1, _STEPS + 1):
        retries = _allocation_retries(ranks)
        for number in range(accumulation):
            with gradient_sync(train_state.model, last=number == accumulation - 1):
                batch = zero_batch(config, images=layout.micro_batch, device=ranks.device)
                train_state.losses(batch).sum().backward()
        train_state.update(step)
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
    if _allocation_retries(ranks) > retries:
        raise torch.OutOfMemoryError("a step frees the allocator's cache to go on, which is slow")


def _allocation_retries(ranks: Ranks) -> int:
    """Return how often the GPU was full until the allocator had freed its cache."""
    if ranks.device.type != "cuda":
        return 0
    return int(torch.cuda.memory_stats(ranks.device).get("num_alloc_retries", 0))


def _leave_margin(ranks: Ranks) -> None:
    """Limit this process to a little less memory than a run would have."""
    if ranks.device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(1 - MARGIN, ranks.device)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (int(soft * (1 - MARGIN)), hard))
    group = _control_group_limit()
    if group is not None:
        # Beyond its limit the kernel kills the process silently: make an allocation fail first.
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        mine = int(group * (1 - MARGIN) / ranks.local_world)
        if soft == resource.RLIM_INFINITY or mine < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (mine, hard))


def _control_group_limit(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the smallest memory limit, in bytes, of this process's cgroup (v2) and its parents."""
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
    """Exit if the rank is killed, so that no process stays behind and holds its GPU."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
