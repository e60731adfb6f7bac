"""Fixtures for tests of several folders."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep runs and caches in folders of the tests, and a job and xdist's terminal out of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("SLURM_", "SBATCH_")):
                patch.delenv(name)
        for name in ("ENVIRONMENT", "COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("LOGS", str(tmp_path_factory.mktemp("logs")))
        # No file of a test has to survive a power cut.
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of runs, for a test that counts them or shares them with another process."""
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    return tmp_path / "logs"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked `gpu` on a machine without one."""
    if item.get_closest_marker("gpu"):
        # Imported here, since not every test needs torch.
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA GPU")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which every user of the machine may write."""
    folder = Path(tempfile.mkdtemp(prefix="ditbench-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def intruder(shared: Path) -> Callable[[str], None]:
    """Run a shell command in `shared` as another user of the machine."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as a second user")
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    def act(script: str) -> None:
        subprocess.run([*user, "bash", "-euc", script], cwd=shared, check=True)

    return act


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a function that replaces a command of Slurm by a shell script."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, script: str) -> Path:
        file = folder / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)
        return file

    return make


@pytest.fixture(autouse=True)
def _unexpected_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command that is tested in this process raise what users see as one line."""
    monkeypatch.setenv("DITBENCH_TRACEBACK", "1")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run on one thread: threads that wait by spinning would slow the tests beside this one."""
    # Imported here, since not every test needs torch.
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
