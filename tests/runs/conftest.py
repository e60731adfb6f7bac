"""A config and a folder for its runs, isolated from any job of this machine."""

import subprocess
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


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a small repository with one commit."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / ".gitignore").write_text("ignored\n")
    (root / "a.py").write_text("a = 1\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "One")
    return root


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", root, *words], check=True, capture_output=True)
