"""One real Slurm for all tests below this folder, on one worker, stopped after the last of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SCRIPTS, Cluster


# First: xdist reads the groups in a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test here; under `pytest -n ... --dist loadgroup` one worker gets them all."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            if config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skip where Slurm's packages are missing; on a CI machine that is a failure."""
    check = subprocess.run([SCRIPTS / "install", "--check"], capture_output=True, text=True)
    if check.returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(check.stderr.strip())


@pytest.fixture(scope="session")
def cluster(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The session's Slurm. Each test finds it without jobs and with all nodes idle."""
    one = Cluster.start(tmp_path_factory.mktemp("slurm"))
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture(autouse=True)
def empty_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").clear()
