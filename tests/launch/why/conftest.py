"""A run that ended, its records and logs, and a Slurm that has forgotten its job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.load import load, to_tree
from runs.folder import RunFolder, make_run
from runs.records import RecordWriter
from tests.launch.conftest import DIGITS

Launch = Callable[..., tuple[int, str, str]]


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
