"""`train.micro_batch: auto`: the largest micro batch that fits, found in child processes.

Every rank starts a child for each candidate, and the children train a few steps together
(`train/pretrain/micro_batch_trial.py`). Only a true lack of memory makes a candidate too large;
whatever else goes wrong there ends the run with its own reason.
"""

import json
from typing import Any

import torch

from configs.checks.batch import divide
from configs.disk import replace_file
from configs.run.folder import RunFolder
from configs.schema import Pretrain
from train.engine.distributed import Ranks, bootstrap_store
from train.engine.metrics import log
from train.pretrain.micro_batch_search import MicroBatchSearch


def tuned_micro_batch(run: RunFolder, config: Pretrain, ranks: Ranks, attempt: int) -> int | None:
    """The micro batch of this attempt where the config leaves it open, the same on every rank.

    An earlier attempt on as many ranks of the same layout and hardware has found it already.
    Called before any rank has touched its GPU. `RunFailure` where not even one image fits.
    """
    if config.train.micro_batch != "auto":
        return None
    store = bootstrap_store(ranks)
    setting = _setting(config, ranks)
    if ranks.rank == 0:
        store.set("tune/known", json.dumps(_known(run, setting)))
    found = json.loads(store.get("tune/known"))
    if found is None:
        search = MicroBatchSearch(run=run, ranks=ranks, attempt=attempt, store=store)
        share = divide(config, world=ranks.world).micro_batch
        micro, tried = search.largest([n for n in range(1, share + 1) if share % n == 0])
        found = {"micro_batch": micro, "tried": tried, "attempt": attempt}
    if ranks.rank == 0:
        _record(run, attempt, found, setting)
    log.info("micro batch %d fits (tried in attempt %d)", found["micro_batch"], found["attempt"])
    return int(found["micro_batch"])


def _setting(config: Pretrain, ranks: Ranks) -> dict[str, Any]:
    """What a result holds for: all else that memory depends on cannot change within a run."""
    layout = divide(config, world=ranks.world)
    setting: dict[str, Any] = {
        "replicate": layout.replicate,
        "shard": layout.shard,
        "tensor": layout.tensor,
        "device": "cpu",
    }
    if ranks.device.type == "cuda":
        properties = torch.cuda.get_device_properties(ranks.device)
        setting |= {"device": properties.name, "memory_gb": properties.total_memory / 1e9}
    return setting


def _known(run: RunFolder, setting: dict[str, Any]) -> dict[str, Any] | None:
    """What the newest earlier attempt in this setting found."""
    for attempt in reversed(run.attempts()):
        try:
            text = (run.attempt(attempt) / "tuned.json").read_text(encoding="utf-8")
            found: dict[str, Any] = json.loads(text)
        except (OSError, ValueError):
            continue
        if found.get("setting") == setting:
            return found
    return None


def _record(run: RunFolder, attempt: int, found: dict[str, Any], setting: dict[str, Any]) -> None:
    kept = found | {"setting": setting}
    replace_file(run.attempt(attempt) / "tuned.json", json.dumps(kept, indent=1))
    run.record_event(
        attempt,
        "tuned",
        micro_batch=found["micro_batch"],
        tried=found["tried"],
        found_in_attempt=found["attempt"],
    )
