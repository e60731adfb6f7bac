"""A config and a folder for its runs, isolated from any job of this machine."""

import os
from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import opened


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of runs; the environment holds no job."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("ENVIRONMENT", raising=False)
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    return tmp_path / "logs"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my 'odd\" name.yaml"
    path.write_text("train: {steps: 10, global_batch: 8}\n")
    return path


def begin(source: Path, *overrides: str, gpus: int | None = 0) -> RunFolder:
    """Begin an attempt at a run on a node of `gpus` GPUs; return the run."""
    return opened(source, overrides, gpus=gpus)
