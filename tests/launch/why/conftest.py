"""A run that ended, its records and logs, and a Slurm that has forgotten its job."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.load import load, to_tree
from runs.folder import RunFolder, make_run
from runs.records import RecordWriter
from tests.launch.conftest import DIGITS

Launch = Callable[..., tuple[int, str, str]]
Why = Callable[[], dict[str, Any]]
CUDA_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 44.34 GiB of which 1.11 GiB is free."
)
CASCADE = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, remote process "
    "exited or there was a network error\nncclRemoteError: A call failed possibly due to a network "
    "error or a remote process exiting prematurely."
)
ROOT_CAUSE = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_10:00:0{second}
  host      : {host}
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 19871)
  traceback : Signal {signal} received by PID 19871
"""


@pytest.fixture(autouse=True)
def no_slurm(command: Callable[[str, str], Path]) -> None:
    """A Slurm that has forgotten every job."""
    for name in ("squeue", "sacct", "scontrol"):
        command(name, "exit 1")


@pytest.fixture
def run(site: Path) -> RunFolder:
    """Return a run with one started attempt."""
    made = make_run("digits", to_tree(load(DIGITS, [])), identity="71")
    (made.attempt(1) / "ranks").mkdir(parents=True)
    made.note(1, time=1000.0, slurm={"job": "71"})
    record(made, "started", step=0)
    return made


def record(run: RunFolder, event: str, **fields: Any) -> None:
    writer = RecordWriter(run.path, attempt=1)
    writer.event(event, **fields)
    writer.close()


def write_log(run: RunFolder, name: str, *lines: str) -> None:
    with (run.attempt(1) / name).open("a") as file:
        file.write("\n".join(lines) + "\n")


def fail(run: RunFolder, *, rank: int, reason: str, message: str) -> None:
    """Write the error note of the first failing rank and close the attempt."""
    note = {"rank": rank, "node": f"node-{rank // 2}", "reason": reason, "message": message}
    (run.attempt(1) / "error.json").write_text(json.dumps(note))
    record(run, "failed", reason=reason, message=message, rank=rank)


@pytest.fixture
def why(launch: Launch, run: RunFolder) -> Callable[[], dict[str, Any]]:
    def ask() -> dict[str, Any]:
        return json.loads(launch("why", run.path, "--json")[1])[-1]

    return ask
