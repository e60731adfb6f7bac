"""Ranks that stay for the next run: torch is imported once for all runs of as many ranks.

python -m torch.distributed.run --nproc-per-node=N -m tests.torchrun_pool FOLDER PID
(tests/real_runs.py does)
"""

import atexit
import contextlib
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from configs.disk import replace_file

# What torchrun tells a rank; of the rest of the environment each run has its own.
_PLACE = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMP_")


@dataclass(frozen=True, kw_only=True)
class Order:
    """A run that the ranks shall carry out: what `python -m ENGINE RUN` would."""

    engine: str
    run: str
    port: int
    environment: dict[str, str]


class Crew:
    """`ranks` ranks under one torchrun, of one thread each."""

    def __init__(self, ranks: int, *, environment: Mapping[str, str]) -> None:
        self._ranks = ranks
        self._orders = 0
        self._folder = Path(tempfile.mkdtemp(prefix="crew-"))
        self._output = self._folder / "output.log"
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(
                f"--nproc-per-node={ranks}",
                "-m",
                "tests.torchrun_pool",
                str(self._folder),
                str(os.getpid()),
            ),
        ]
        with self._output.open("w") as output:
            self._agent = subprocess.Popen(
                command,
                env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        atexit.register(self.dismiss)

    def carry_out(
        self, run: Path, *, engine: str, environment: Mapping[str, str], timeout: float = 400
    ) -> None:
        """Have the run carried out; AssertionError with what was said where a rank fails."""
        self._orders += 1
        said_before = self._output.stat().st_size
        order = Order(engine=engine, run=str(run), port=_free_port(), environment=dict(environment))
        replace_file(_order_file(self._folder, self._orders), json.dumps(vars(order)))
        try:
            _wait(self._is_decided, timeout=timeout)
        except BaseException:
            self.dismiss()
            raise
        # Where one has failed the others fail as well, or wait for it for ever.
        with contextlib.suppress(TimeoutError):
            _wait(self._has_ended, timeout=30)
        said, statuses = self._output.read_bytes()[said_before:].decode(), self._statuses()
        if len(statuses) < self._ranks:
            self.dismiss()
        assert statuses == [0] * self._ranks, said

    def dismiss(self) -> None:
        """End the ranks at once; nothing where they have ended."""
        if self.is_there:
            for pid in (*_children(self._agent.pid), self._agent.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._agent.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_there(self) -> bool:
        return self._agent.poll() is None

    def _statuses(self) -> list[int]:
        """Of the ranks that have ended with the newest order."""
        files = self._folder.glob(f"status-{self._orders}-*")
        return [int(file.read_text()) for file in files]

    def _is_decided(self) -> bool:
        return self._has_ended() or any(self._statuses())

    def _has_ended(self) -> bool:
        return len(self._statuses()) == self._ranks or not self.is_there


def _wait(condition: Callable[[], bool], *, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ranks were not done after {timeout:g} s")
        time.sleep(0.02)


def _order_file(folder: Path, number: int) -> Path:
    return folder / f"order-{number}.json"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listed.stdout.split()]


def serve(folder: Path, *, master: int) -> None:
    """Carry out order after order, until the process that gives them has ended."""
    rank, place, number = int(os.environ["RANK"]), _place(), 1
    while True:
        file = _order_file(folder, number)
        while not file.exists():
            if not Path(f"/proc/{master}").exists():
                return
            time.sleep(0.02)
        order = Order(**json.loads(file.read_text()))
        os.environ.clear()
        os.environ.update(order.environment | place | {"MASTER_PORT": str(order.port)})
        engine = importlib.import_module(f"{order.engine}.__main__")
        status = engine.main([order.run])
        replace_file(folder / f"status-{number}-{rank}", str(status))
        number += 1


def _place() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(_PLACE)}
    # In the store of torchrun's agent stand the addresses of the group of the run before.
    return kept | {"TORCHELASTIC_USE_AGENT_STORE": "False"}


if __name__ == "__main__":
    serve(Path(sys.argv[1]), master=int(sys.argv[2]))
