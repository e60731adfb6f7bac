"""A pool of ranks that serve one run after another, so that torch is imported only once.

python -m torch.distributed.run --nproc-per-node=N -m tests.torchrun_pool FOLDER PID
(tests/real_runs.py starts it)
"""

import atexit
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from configs.disk import replace_file

# The variables that torchrun sets for a rank; each run brings the rest of the environment.
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMP_")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run for the ranks to carry out, as `python -m ENGINE RUN` would."""

    engine: str
    run: str
    store: str
    environment: dict[str, str]


class RankPool:
    """`ranks` ranks under one torchrun, with one thread each."""

    def __init__(self, ranks: int, *, environment: Mapping[str, str]) -> None:
        self._ranks = ranks
        self._requests = 0
        self._folder = Path(tempfile.mkdtemp(prefix="rank-pool-"))
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
        atexit.register(self.stop)

    def run(
        self, folder: Path, *, engine: str, environment: Mapping[str, str], timeout: float = 400
    ) -> None:
        """Carry out an attempt at the run; raise AssertionError with the output if a rank fails."""
        self._requests += 1
        size_before = self._output.stat().st_size
        request = RunRequest(
            engine=engine,
            run=str(folder),
            store=str(self._folder / f"store-{self._requests}"),
            environment=dict(environment),
        )
        replace_file(_request_file(self._folder, self._requests), json.dumps(vars(request)))
        try:
            _wait(self._is_decided, timeout=timeout)
        except BaseException:
            self.stop()
            raise
        # If one rank has failed, the others fail too, or wait for it for ever.
        with contextlib.suppress(TimeoutError):
            _wait(self._has_ended, timeout=30)
        output, statuses = self._output.read_bytes()[size_before:].decode(), self._statuses()
        if len(statuses) < self._ranks:
            self.stop()
        assert statuses == [0] * self._ranks, output

    def stop(self) -> None:
        """Kill the ranks, unless they have ended."""
        if self.is_alive:
            for pid in (*_children(self._agent.pid), self._agent.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._agent.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_alive(self) -> bool:
        return self._agent.poll() is None

    def _statuses(self) -> list[int]:
        """The exit statuses of the ranks that are done with the newest request."""
        files = self._folder.glob(f"status-{self._requests}-*")
        return [int(file.read_text()) for file in files]

    def _is_decided(self) -> bool:
        return self._has_ended() or any(self._statuses())

    def _has_ended(self) -> bool:
        return len(self._statuses()) == self._ranks or not self.is_alive


def _wait(condition: Callable[[], bool], *, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ranks were not done after {timeout:g} s")
        time.sleep(0.02)


def _request_file(folder: Path, number: int) -> Path:
    return folder / f"request-{number}.json"


def _children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listed.stdout.split()]


def serve(folder: Path, *, master: int) -> None:
    """Serve one request after another, until the process that writes them has ended."""
    rank, placement, number = int(os.environ["RANK"]), _placement(), 1
    while True:
        file = _request_file(folder, number)
        while not file.exists():
            if not Path(f"/proc/{master}").exists():
                return
            time.sleep(0.02)
        request = RunRequest(**json.loads(file.read_text()))
        os.environ.clear()
        os.environ.update(request.environment | placement | {"AGENT_STORE": request.store})
        engine = importlib.import_module(f"{request.engine}.__main__")
        status = engine.main([request.run])
        replace_file(folder / f"status-{number}-{rank}", str(status))
        number += 1


def _placement() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_TORCHRUN)}


if __name__ == "__main__":
    serve(Path(sys.argv[1]), master=int(sys.argv[2]))
