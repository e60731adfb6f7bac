"""The watchdog that finds a hung rank, names it, and ends the attempt.

Every rank writes its progress to torchrun's store. If a rank makes none for five median steps and
at least `train.hang_s`, its watchdog thread ends the attempt: each rank that still can dumps its
stacks, and the rank that is furthest behind is named. Only training steps are watched: compiling,
saving and evaluating have no limit.
"""

import contextlib
import faulthandler
import os
import signal
import statistics
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from torch._C import _distributed_c10d
from torch.distributed import PrefixStore

from runs.slurm_env import node_name
from train.engine.distributed import Ranks, bootstrap_store
from train.engine.failure import RunFailure, write_error

_TICK_S = 1.0
# A tick this late means that the whole process was suspended.
_SUSPENDED_S = 5.0
_MEDIANS, _REMEMBERED = 5, 50
# The limit until two steps have been timed.
_UNKNOWN_S = 1200.0
# The time in which a rank that is not suspended answers: some ticks, on a busy node.
_ANSWER_S = 8.0
# The time that ranks have to dump their stacks before they end.
_GRACE_S = 5.0


class HangWatchdog:
    """Watches the steps of one rank from a thread; with `least_s=None` it does nothing."""

    def __init__(self, attempt: Path, *, ranks: Ranks, least_s: float | None) -> None:
        self._attempt, self._ranks, self._least_s = attempt, ranks, least_s
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self._at, self._since = (0, 0), time.monotonic()
        self._began: float | None = None
        self._armed, self._closed = False, threading.Event()
        self._stacks = (attempt / "ranks" / f"stack-{ranks.rank:05d}.txt").open("a")
        if least_s is None:
            return
        # A neighbour sends this signal to get the stacks of a suspended process.
        faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
        self._store = PrefixStore("hang", bootstrap_store(ranks))
        self._store.set(f"who/{ranks.rank}", f"{os.getpid()} {node_name()}")
        threading.Thread(target=self._watch, name="hang watch", daemon=True).start()

    def begin_step(self, step: int) -> None:
        """Arm the watchdog for `step`."""
        now = time.monotonic()
        if self._began is not None:
            self._durations.append(now - self._began)
        self._began = now
        self._at, self._since, self._armed = (step, 0), now, True

    def progress(self) -> None:
        """Count one more part of the step as done."""
        step, parts = self._at
        self._at, self._since = (step, parts + 1), time.monotonic()

    def disarm(self) -> None:
        """Disarm until the next step."""
        self._armed, self._began = False, None

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        faulthandler.unregister(signal.SIGUSR2)
        self._stacks.close()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._closed.wait(_TICK_S):
            now = time.monotonic()
            if now - last > _SUSPENDED_S:
                self._since = now
            last = now
            step, parts = self._at
            self._store.set(f"at/{self._ranks.rank}", f"{step} {parts}")
            # One rank alone judges: it wakes a suspended one, which another would then see awake.
            is_late = self._armed and now - self._since > self.limit()
            if is_late and self._store.add("judges", 1) == 1:
                self._end_attempt()
            if self._store.check(["over"]):
                # Another rank is ending the attempt, and this process with it.
                self._store.set(f"awake/{self._ranks.rank}", "")
                self._dump_stacks()
                return

    def limit(self) -> float:
        """Return the seconds without progress after which the rank counts as hung."""
        assert self._least_s is not None
        if len(self._durations) < 2:
            return max(self._least_s, _UNKNOWN_S)
        return max(self._least_s, _MEDIANS * statistics.median(self._durations))

    def _end_attempt(self) -> None:
        """Collect stacks, write an error that names the hung rank, and end this process."""
        self._store.set("over", "")
        self._store.set(f"awake/{self._ranks.rank}", "")
        self._dump_stacks()
        self._await_answers()
        ranks = [self._progress_of(rank) for rank in range(self._ranks.world)]
        hung = min(ranks)
        pid, node = self._store.get(f"who/{hung.rank}").decode().split(" ", 1)
        if hung.rank != self._ranks.rank:
            self._request_stacks(hung.rank, int(pid))
        time.sleep(_GRACE_S)
        stacks = f"stacks: {self._attempt / 'ranks'}/stack-*.txt"
        error = RunFailure("hang", f"{_message(ranks, hung, node)}; {stacks}")
        write_error(self._attempt, error, rank=hung.rank, node=node)
        os._exit(1)

    def _await_answers(self) -> None:
        """Wait until every rank has seen that the attempt ends; a suspended one does not answer."""
        answers = [f"awake/{rank}" for rank in range(self._ranks.world)]
        end = time.monotonic() + _ANSWER_S
        while time.monotonic() < end and not self._store.check(answers):
            time.sleep(0.1)

    def _dump_stacks(self) -> None:
        faulthandler.dump_traceback(file=self._stacks, all_threads=True)
        self._stacks.flush()
        threading.Thread(target=self._dump_collectives, daemon=True).start()

    def _dump_collectives(self) -> None:
        """Write NCCL's newest collectives as at its own timeout; CUDA may not answer."""
        prefix = os.environ.get("TORCH_FR_DUMP_TEMP_FILE")
        if prefix and self._ranks.device.type == "cuda":
            dump = _distributed_c10d._dump_nccl_trace()  # type: ignore[attr-defined]
            Path(f"{prefix}{self._ranks.rank}").write_bytes(dump)

    def _progress_of(self, rank: int) -> "RankProgress":
        key = f"at/{rank}"
        step, parts = (self._store.get(key).decode() if self._store.check([key]) else "0 0").split()
        awake = self._store.check([f"awake/{rank}"])
        return RankProgress(awake=awake, step=int(step), parts=int(parts), rank=rank)

    def _request_stacks(self, rank: int, pid: int) -> None:
        """Make a suspended process dump its stacks; this works only on the same node."""
        ranks_per_node = self._ranks.local_world
        if rank // ranks_per_node == self._ranks.rank // ranks_per_node:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)
                os.kill(pid, signal.SIGCONT)


@dataclass(frozen=True, order=True, kw_only=True)
class RankProgress:
    """The progress of one rank; the smallest hangs: a suspended one, else the furthest back."""

    awake: bool
    step: int
    parts: int
    rank: int


def _message(ranks: list[RankProgress], hung: RankProgress, node: str) -> str:
    if not hung.awake:
        return f"rank {hung.rank} on {node} hangs at step {hung.step}: its process does not answer"
    if all((each.step, each.parts) == (hung.step, hung.parts) for each in ranks):
        return f"all ranks hang at the same point of step {hung.step}"
    return f"rank {hung.rank} on {node} hangs at step {hung.step}, behind the others"
