"""`train.micro_batch: auto`: the largest micro batch that fits into memory, by binary search.

For each candidate the search starts a child process on every rank, and the children take a few
training steps together (`micro_batch_trial.py`). A candidate is too large only if memory ran out;
any other failure of a child ends the run with its own reason.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import Store

from configs.checks.batch import divide, micro_batches
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.schema import Pretrain
from runs.folder import RunFolder
from runs.json_files import MicroBatch, read_json
from train.engine.distributed import STORE_PREFIX, Ranks, bootstrap_store
from train.engine.failure import RunFailure
from train.engine.metrics import log

_POLL_S = 0.1
# How long children may go on after another has failed, and how late a rank may be.
_GRACE_S, _LATE_S = 10.0, 600.0
# Lines of a child's output that are kept for the message.
_LINES = 15
Verdict = dict[str, str]


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


@dataclass(kw_only=True)
class MicroBatchSearch:
    """The search on one rank; all ranks try the same candidates in the same order."""

    run: RunFolder
    ranks: Ranks
    attempt: int
    store: Store

    def largest(self, candidates: list[int]) -> tuple[int, dict[str, str]]:
        """Return the largest sorted candidate that fits and all verdicts, or raise `RunFailure`."""
        tried: dict[str, str] = {}
        low, high = -1, len(candidates)  # fits, does not fit
        while high - low > 1:
            middle = (low + high) // 2
            verdict = self.verdict_on(candidates[middle])
            tried[str(candidates[middle])] = verdict["verdict"]
            log.info("micro batch %d: %s", candidates[middle], verdict["verdict"])
            if verdict["verdict"] == "oom":
                high, refusal = middle, verdict
            else:
                low = middle
        if low < 0:
            raise RunFailure(
                refusal["reason"],
                "not even a micro batch of 1 fits: shard the parameters over more ranks "
                "(layout.shard), recompute activations (activation_checkpointing.mode: full), or "
                f"take a GPU with more memory ({refusal['message']})",
            )
        return candidates[low], tried

    def verdict_on(self, micro: int) -> Verdict:
        """Return the joint verdict of all ranks; raise `RunFailure` if a child failed otherwise."""
        key = f"tune/{micro}"
        with _Child(self, micro) as child:
            mine = self._wait(child, key)
        mine |= {"rank": str(self.ranks.rank)}
        self.store.set(f"{key}/{self.ranks.rank}", json.dumps(mine))
        everybody = [self._verdict_of(key, rank) for rank in range(self.ranks.world)]
        full = [verdict for verdict in everybody if verdict["verdict"] == "oom"]
        if full:
            return full[0]
        failed = [verdict for verdict in everybody if verdict["verdict"] == "failed"]
        if failed:
            # Later failures may be no more than a lost connection to the first.
            first = min(failed, key=lambda verdict: float(verdict["time"]))
            raise RunFailure(
                first["reason"],
                f"a trial step with micro batch {micro} failed on rank {first['rank']}: "
                f"{first['message']}\n{first['last_lines']}",
            )
        return everybody[0]

    def _wait(self, child: "_Child", key: str) -> Verdict:
        """Return this rank's verdict; if another rank's child failed, end this one's."""
        ended_at = None
        while child.process.poll() is None:
            time.sleep(_POLL_S)
            if ended_at is None and self.store.check([f"{key}/bad"]):
                ended_at = time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > _GRACE_S:
                return {"verdict": "ended"}
        verdict = child.verdict()
        if verdict["verdict"] != "fits":
            self.store.set(f"{key}/bad", "yes")
        return verdict

    def _verdict_of(self, key: str, rank: int) -> Verdict:
        """Return the verdict of a rank, waiting for it if it is late."""
        late = time.monotonic() + _LATE_S
        while not self.store.check([f"{key}/{rank}"]):
            if time.monotonic() > late:
                raise RunFailure("hang", f"rank {rank} reported no result of its trial step")
            time.sleep(_POLL_S)
        verdict: Verdict = json.loads(self.store.get(f"{key}/{rank}"))
        return verdict


class _Child:
    """The trial process of this rank; leaving the `with` kills it."""

    def __init__(self, search: MicroBatchSearch, micro: int) -> None:
        folder = search.run.attempt(search.attempt) / "tuning" / f"micro-batch-{micro:05d}"
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / f"rank-{search.ranks.rank:05d}.log"
        self._verdict = folder / f"rank-{search.ranks.rank:05d}.json"
        command = [sys.executable, "-m", "train.pretrain.micro_batch_trial", str(search.run.path)]
        command += ["--attempt", str(search.attempt), "--micro-batch", str(micro)]
        # The children meet in the store of these ranks, which is not theirs to serve.
        shared = {STORE_PREFIX: f"trial-{micro}", "TORCHELASTIC_USE_AGENT_STORE": "True"}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--verdict", str(self._verdict)],
                env=os.environ | shared,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_ignore_signals,
            )

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def verdict(self) -> Verdict:
        """Return the verdict it wrote; a child that died without writing one has failed."""
        lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
        last = {"last_lines": "\n".join(lines[-_LINES:])}
        if self._verdict.is_file():
            written: Verdict = json.loads(self._verdict.read_text(encoding="utf-8"))
            return written | last
        status = f"its process exited with status {self.process.returncode} and no verdict"
        died = {"verdict": "failed", "reason": "crash", "time": str(time.time())}
        return died | {"message": status} | last


def _ignore_signals() -> None:
    # Slurm signals every process of a step; only the rank itself may act on it.
    for name in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)
