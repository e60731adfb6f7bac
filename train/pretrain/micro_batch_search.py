"""Binary search for the largest micro batch that fits; all ranks try each candidate together."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from torch.distributed import Store

from configs.run.folder import RunFolder
from train.engine.distributed import STORE_PREFIX, Ranks
from train.engine.failure import RunFailure
from train.engine.metrics import log

_POLL_S = 0.1
# How long children may go on after another has failed, and how late a rank may be.
_GRACE_S, _LATE_S = 10.0, 600.0
# Lines of a child's output that are kept for the message.
_LINES = 15

Verdict = dict[str, str]


@dataclass(kw_only=True)
class MicroBatchSearch:
    """The search on one rank; all ranks try the same candidates in the same order."""

    run: RunFolder
    ranks: Ranks
    attempt: int
    store: Store

    def largest(self, candidates: list[int]) -> tuple[int, dict[str, str]]:
        """Return the largest of the sorted `candidates` that fits, and all verdicts on the way.

        Raise `RunFailure` if none fits.
        """
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
