"""A config, and a place for its runs, that no job of this machine has a part in."""

import os
from pathlib import Path

import pytest

from configs.run.folder import RunFolder
from tests.real_runs import opened


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are made; the environment is that of no job."""
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
    """A run with an attempt, begun by a node of `gpus` GPUs."""
    return opened(source, overrides, gpus=gpus)
