"""A config and a folder for its runs, isolated from any job of this machine."""

from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import opened


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my 'odd\" name.yaml"
    path.write_text("train: {steps: 10, global_batch: 8}\n")
    return path


def begin(source: Path, *overrides: str, gpus: int | None = 0) -> RunFolder:
    """Begin an attempt at a run on a node of `gpus` GPUs; return the run."""
    return opened(source, overrides, gpus=gpus)
