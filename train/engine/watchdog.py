"""A rank that stands still while the others wait: found, named, and the attempt ended.

Every rank tells the others, through torchrun's store, how far it is. Where nothing has moved for
five median steps (and `train.hang_s`), a thread of each rank that still can leaves a stack, the
rank that is furthest behind is named, and the attempt ends. Only training steps are watched:
compiling, saving and sampling may take their time.
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

from torch.distributed import PrefixStore

from configs.run.slurm_env import node_name
from train.engine.distributed import Ranks, bootstrap_store
from train.engine.failure import RunFailure, write_error

_TICK_S = 0.5
# A tick that comes so late tells that the whole process slept.
_ASLEEP_S = 5.0
_MEDIANS, _REMEMBERED = 5, 50
# Until two steps are known, nobody can tell a slow one.
_UNKNOWN_S = 1200.0
# How long ranks leave one another to write stacks before they end.
_GRACE_S = 5.0


class HangWatchdog:
    """Watches the steps of one rank from a thread of its own; with `least_s` None it does not."""

    def __init__(self, attempt: Path, *, ranks: Ranks, least_s: float | None) -> None:
        self._attempt, self._ranks, self._least_s = attempt, ranks, least_s
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self._place, self._since = (0, 0), time.monotonic()
        self._began: float | None = None
        self._armed, self._over = False, threading.Event()
        self._stacks = (attempt / "ranks" / f"stack-{ranks.rank:05d}.txt").open("a")
        if least_s is None:
            return
        # Of a process that sleeps a neighbour asks for the stack.
        faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
        self._store = PrefixStore("hang", bootstrap_store(ranks))
        self._store.set(f"who/{ranks.rank}", f"{os.getpid()} {node_name()}")
        threading.Thread(target=self._watch, name="hang watch", daemon=True).start()

    def begin_step(self, step: int) -> None:
        """A step begins."""
        now = time.monotonic()
        if self._began is not None:
            self._durations.append(now - self._began)
        self._began = now
        self._place, self._since, self._armed = (step, 0), now, True

    def progress(self) -> None:
        """One more part of the step is behind this rank."""
        step, parts = self._place
        self._place, self._since = (step, parts + 1), time.monotonic()

    def disarm(self) -> None:
        """What comes now, until the next step, may take its time."""
        self._armed, self._began = False, None

    def close(self) -> None:
        """End the watch."""
        self._over.set()
        faulthandler.unregister(signal.SIGUSR2)
        self._stacks.close()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(_TICK_S):
            now = time.monotonic()
            if now - last > _ASLEEP_S:
                self._since = now
            last = now
            step, parts = self._place
            self._store.set(f"at/{self._ranks.rank}", f"{step} {parts} {time.time()}")
            if self._armed and now - self._since > self.limit():
                self._end()
            if self._store.check(["over"]):
                # Another rank is about to end the attempt, and this one with it.
                self._leave_stack()
                return

    def limit(self) -> float:
        """Seconds without a move after which the rank counts as hung."""
        assert self._least_s is not None
        if len(self._durations) < 2:
            return max(self._least_s, _UNKNOWN_S)
        return max(self._least_s, _MEDIANS * statistics.median(self._durations))

    def _end(self) -> None:
        """Leave stacks and a note that names who stands still, and end this process."""
        self._store.set("over", str(self._ranks.rank))
        self._leave_stack()
        found = [self._place_of(rank) for rank in range(self._ranks.world)]
        last = min(found)
        pid, node = self._store.get(f"who/{last.rank}").decode().split(" ", 1)
        if last.rank != self._ranks.rank:
            self._wake(last.rank, int(pid))
        time.sleep(_GRACE_S)
        stacks = f"stacks: {self._attempt / 'ranks'}/stack-*.txt"
        error = RunFailure("hang", f"{_said(found, last, node)}; {stacks}")
        write_error(self._attempt, error, rank=last.rank, node=node)
        os._exit(1)

    def _leave_stack(self) -> None:
        faulthandler.dump_traceback(file=self._stacks, all_threads=True)
        self._stacks.flush()

    def _place_of(self, rank: int) -> "RankProgress":
        key = f"at/{rank}"
        step, parts, heard = "0", "0", "0"
        if self._store.check([key]):
            step, parts, heard = self._store.get(key).decode().split()
        silent_s = time.time() - float(heard)
        return RankProgress(
            awake=silent_s <= _ASLEEP_S,
            step=int(step),
            parts=int(parts),
            rank=rank,
            silent_s=silent_s,
        )

    def _wake(self, rank: int, pid: int) -> None:
        """Ask a sleeping neighbour for its stack; only a rank of its node can."""
        here = self._ranks.local_world
        if rank // here == self._ranks.rank // here:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)
                os.kill(pid, signal.SIGCONT)


@dataclass(frozen=True, order=True, kw_only=True)
class RankProgress:
    """How far a rank is: who sleeps comes first, then who is furthest behind."""

    awake: bool
    step: int
    parts: int
    rank: int
    silent_s: float


def _said(found: list[RankProgress], last: RankProgress, node: str) -> str:
    if not last.awake:
        return (
            f"rank {last.rank} on {node} stands still at step {last.step}, "
            f"silent for {last.silent_s:.0f} s"
        )
    if all((each.step, each.parts) == (last.step, last.parts) for each in found):
        return f"all ranks stand still at the same point of step {last.step}"
    return f"rank {last.rank} on {node} stands still at step {last.step}, behind the others"
