"""`train.micro_batch: auto`: the largest micro batch that fits by the cost of a step.

The cost is that of `ditbench plan` (`train/cost`), for the memory that the ranks have here. It is
counted in a process of its own: `python -m train.pretrain.micro_batch RUN ...`.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from configs.checks.batch import divide
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.load import expect
from configs.schema import Pretrain
from runs.folder import RunFolder
from runs.json_files import MicroBatch, read_json
from train.cost.estimate import largest_that_divides
from train.cost.memory import pretrain_memory
from train.engine.distributed import Ranks, bootstrap_store
from train.engine.failure import RunFailure
from train.engine.metrics import log

# The share of memory that stays free: what the cost does not count, such as workspaces.
MARGIN = 0.05
_TIMEOUT_S = 900


def tuned_micro_batch(run: RunFolder, config: Pretrain, ranks: Ranks, attempt: int) -> int | None:
    """Return the micro batch to use if the config leaves it open, the same on every rank.

    The result of an earlier attempt is used if its world size, layout and memory were the same.
    Collective, before there is a process group. Raise `RunFailure` if not even one image fits.
    """
    if config.train.micro_batch != "auto":
        return None
    store = bootstrap_store(ranks)
    store.set(f"memory/{ranks.rank}", str(memory_bytes(ranks)))
    if ranks.rank == 0:
        every = [float(store.get(f"memory/{rank}")) for rank in range(ranks.world)]
        found = _micro_batch(run, config, ranks, attempt, capacity=(1 - MARGIN) * min(every))
        store.set("micro batch", json.dumps(found))
    micro, why = json.loads(store.get("micro batch"))
    if why:
        raise RunFailure("host_oom" if ranks.device.type == "cpu" else "oom", why)
    return int(micro)


def memory_bytes(ranks: Ranks) -> float:
    """Return the memory of this rank: of its GPU, or its share of what the system allows."""
    if ranks.device.type == "cuda":
        return float(torch.cuda.get_device_properties(ranks.device).total_memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks.local_world]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    group = _control_group_limit()
    if group is not None:
        limits.append(group / ranks.local_world)
    return min(limits)


def _micro_batch(
    run: RunFolder, config: Pretrain, ranks: Ranks, attempt: int, *, capacity: float
) -> tuple[int | None, str | None]:
    """Return the micro batch, and if there is none the reason."""
    setting = _setting(config, ranks, capacity)
    micro, first = _known(run, setting)
    if micro is None:
        command = [sys.executable, "-m", "train.pretrain.micro_batch", str(run.path), str(attempt)]
        done = subprocess.run(
            [*command, str(ranks.world), str(capacity)],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
            capture_output=True, text=True, check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            return None, f"the memory of a step cannot be counted: {done.stderr[-2000:]}"
        micro, first = json.loads(done.stdout.splitlines()[-1]), attempt
    if micro is None:
        return None, (
            f"not even a micro batch of 1 fits into {capacity / 2**30:.1f} GiB: shard the "
            "parameters over more ranks (layout.shard), recompute activations "
            "(activation_checkpointing.mode: full), or take a GPU with more memory"
        )
    kept = {"micro_batch": micro, "attempt": first, "setting": setting}
    replace_file(run.attempt(attempt) / "tuned.json", json.dumps(kept, indent=1))
    run.record_event(attempt, "tuned", micro_batch=micro, found_in_attempt=first)
    log.info("micro batch %d fits by its cost (counted in attempt %d)", micro, first)
    return micro, None


def _setting(config: Pretrain, ranks: Ranks, capacity: float) -> dict[str, Any]:
    """Return all that memory depends on and that may change between attempts."""
    layout = divide(config, world=ranks.world)
    return {
        "replicate": layout.replicate,
        "shard": layout.shard,
        "tensor": layout.tensor,
        "reshard": config.layout.reshard,
        "device": ranks.device.type,
        "memory_gb": round(capacity / 1e9, 1),
    }


def _known(run: RunFolder, setting: dict[str, Any]) -> tuple[int | None, int]:
    """Return the result of the newest attempt with the same setting, and its attempt; or None."""
    for attempt in reversed(run.attempts()):
        try:
            found = read_json(run.attempt(attempt) / "tuned.json", MicroBatch)
        except (FileNotFoundError, ConfigError):
            continue
        if found["setting"] == setting:
            return found["micro_batch"], found["attempt"]
    return None, 0


def _control_group_limit(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the smallest memory limit, in bytes, of this process's cgroup (v2) and its parents."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    mine = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    limits = []
    for folder in (root / mine, *(root / mine).parents):
        if folder == root.parent:
            break
        try:
            text = (folder / "memory.max").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits, default=None)


def main(arguments: list[str]) -> int:
    """Print the largest micro batch of RUN, ATTEMPT on WORLD ranks of CAPACITY bytes, or null."""
    folder, attempt, world, capacity = arguments
    run = RunFolder(Path(folder))
    config = expect(run.config(int(attempt)), Pretrain, source=run.path)
    micro = largest_that_divides(
        config, world=int(world), capacity=float(capacity), memory_of=pretrain_memory
    )
    print(json.dumps(micro))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
