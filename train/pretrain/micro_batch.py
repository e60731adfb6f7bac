"""`train.micro_batch: auto`: the largest micro batch that fits by the cost of a step.

The cost is counted as `ditbench plan` does (`train/cost`), for the memory that the ranks have
here, in a process of its own: `python -m train.pretrain.micro_batch RUN ATTEMPT WORLD BYTES`.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import torch

from configs.load import expect
from configs.schema import Pretrain
from runs.folder import RunFolder
from train.cost.estimate import largest_that_divides
from train.engine.distributed import Ranks, bootstrap_store
from train.engine.failure import RunFailure
from train.engine.metrics import log

# The share of memory that stays free: what the cost does not count, such as workspaces.
MARGIN = 0.05
_TIMEOUT_S = 900  # the other ranks wait for 20 minutes
_FIX = "set train.micro_batch"


def tuned_micro_batch(run: RunFolder, config: Pretrain, ranks: Ranks, attempt: int) -> int | None:
    """Return the micro batch to use if the config leaves it open, the same on every rank.

    Collective, before there is a process group. Raise `RunFailure` if not even one image fits.
    """
    if config.train.micro_batch != "auto":
        return None
    store = bootstrap_store(ranks)
    store.set(f"memory/{ranks.rank}", str(memory_bytes(ranks)))
    if ranks.rank == 0:
        least = min(float(store.get(f"memory/{rank}")) for rank in range(ranks.world))
        store.set("micro batch", _counted(run, ranks, attempt, capacity=(1 - MARGIN) * least))
    found = json.loads(store.get("micro batch"))
    if "why" in found:
        raise RunFailure("host_oom" if ranks.device.type == "cpu" else "oom", found["why"])
    if ranks.rank == 0:
        run.record_event(attempt, "tuned", micro_batch=found["micro_batch"])
    log.info("micro batch %d fits by its cost", found["micro_batch"])
    return int(found["micro_batch"])


def memory_bytes(ranks: Ranks) -> float:
    """Return the memory of this rank: of its GPU, or its share of what the system allows."""
    if ranks.device.type == "cuda":
        return float(torch.cuda.get_device_properties(ranks.device).total_memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks.local_world]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    return min(limits)


def _counted(run: RunFolder, ranks: Ranks, attempt: int, *, capacity: float) -> str:
    """Return as JSON the `micro_batch`, or `why` there is none."""
    words = [str(run.path), str(attempt), str(ranks.world), str(capacity)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "train.pretrain.micro_batch", *words],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return json.dumps({"why": f"a step was not counted in {_TIMEOUT_S} s: {_FIX}"})
    except subprocess.CalledProcessError as error:
        return json.dumps({"why": f"a step cannot be counted: {error.stderr[-2000:]}"})
    micro = json.loads(done.stdout.splitlines()[-1])
    why = (
        f"not even a micro batch of 1 fits into {capacity / 2**30:.1f} GiB: shard the "
        "parameters over more ranks (layout.shard), recompute activations "
        "(activation_checkpointing.mode: full), or take a GPU with more memory"
    )
    return json.dumps({"micro_batch": micro} if micro else {"why": why})


def main(arguments: list[str]) -> int:
    """Print the largest micro batch of a run that fits, or null."""
    folder, attempt, world, capacity = arguments
    run = RunFolder(Path(folder))
    config = expect(run.config(int(attempt)), Pretrain, source=run.path)
    micro = largest_that_divides(config, world=int(world), capacity=float(capacity))
    print(json.dumps(micro))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
