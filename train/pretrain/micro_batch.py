"""`train.micro_batch: auto`: the largest micro batch that fits into memory.

The search (`micro_batch_search.py`) starts a child process on every rank for each candidate, and
the children take a few training steps together (`micro_batch_trial.py`). A candidate is too large
only if memory ran out; any other failure of a child ends the run with its own reason.
"""

import json
from typing import Any

import torch

from configs.checks.batch import divide, micro_batches
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.run.folder import RunFolder
from configs.run.json_files import MicroBatch, read_json
from configs.schema import Pretrain
from train.engine.distributed import Ranks, bootstrap_store
from train.engine.metrics import log
from train.pretrain.micro_batch_search import MicroBatchSearch


def tuned_micro_batch(run: RunFolder, config: Pretrain, ranks: Ranks, attempt: int) -> int | None:
    """Return the micro batch to use if the config leaves it open, the same on every rank.

    The result of an earlier attempt is used if its world size, layout and hardware were the same.
    Call this before any rank has touched its GPU. Raise `RunFailure` if not even one image fits.
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
        micro, tried = search.largest(micro_batches(config, share))
        found = {"micro_batch": micro, "tried": tried, "attempt": attempt}
    if ranks.rank == 0:
        kept = json.dumps(found | {"setting": setting}, indent=1)
        replace_file(run.attempt(attempt) / "tuned.json", kept)
        run.record_event(
            attempt,
            "tuned",
            micro_batch=found["micro_batch"],
            tried=found["tried"],
            found_in_attempt=found["attempt"],
        )
    log.info("micro batch %d fits (tried in attempt %d)", found["micro_batch"], found["attempt"])
    return int(found["micro_batch"])


def _setting(config: Pretrain, ranks: Ranks) -> dict[str, Any]:
    """Return all that memory depends on and that may change between attempts."""
    layout = divide(config, world=ranks.world)
    setting: dict[str, Any] = {
        "replicate": layout.replicate,
        "shard": layout.shard,
        "tensor": layout.tensor,
        "reshard": config.layout.reshard,
        "device": "cpu",
    }
    if ranks.device.type == "cuda":
        properties = torch.cuda.get_device_properties(ranks.device)
        setting |= {"device": properties.name, "memory_gb": properties.total_memory / 1e9}
    return setting


def _known(run: RunFolder, setting: dict[str, Any]) -> MicroBatch | None:
    """Return the result of the newest attempt with the same setting, or None."""
    for attempt in reversed(run.attempts()):
        try:
            found = read_json(run.attempt(attempt) / "tuned.json", MicroBatch)
        except (FileNotFoundError, ConfigError):
            continue
        if found["setting"] == setting:
            return found
    return None
