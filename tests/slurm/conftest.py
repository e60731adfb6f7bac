"""Provide one real Slurm to all tests in this folder, on one worker."""

import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.slurm.checkout import Checkout, make_checkout
from tests.slurm.cluster import SCRIPTS, Cluster
from tests.slurm.pretrain_jobs import Jobs
from tests.slurm.script_project import Project, make_project
from tests.slurm.script_trial import Trial


# Must run first: xdist reads the groups in a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test here; with `--dist loadgroup` a single worker runs them all."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            if config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give every skip here one location, so that pytest's summary folds them into one line."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        _, _, reason = report.longrepr
        report.longrepr = (__file__, 0, reason)
    return report


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skip the tests if Slurm is not installed; on CI fail instead.

    DITBENCH_SLURM=VERSION runs them on that version, whose programs are then first on the PATH.
    """
    if version := os.environ.get("DITBENCH_SLURM"):
        place = subprocess.run(
            [SCRIPTS / "unpack", version], check=True, capture_output=True, text=True
        )
        os.environ["PATH"] = f"{place.stdout.strip()}{os.pathsep}{os.environ['PATH']}"
    check = subprocess.run([SCRIPTS / "install", "--check"], capture_output=True, text=True)
    if check.returncode and os.environ.get("CI"):
        pytest.fail(check.stderr.strip())
    if check.returncode:
        pytest.skip("the tests on a real Slurm; `make slurm` installs it")


@pytest.fixture(scope="session")
def cluster(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start the session's Slurm; before each test it has no jobs and only idle nodes."""
    one = Cluster.start(tmp_path_factory.mktemp("slurm"))
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="module")
def checkout(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of this tree, and a folder of runs, with hostile names."""
    folder = tmp_path_factory.mktemp("checkout")
    root = folder / 'my "check\'out" $(touch hacked); #'
    return make_checkout(cluster, root, logs=folder / "lo gs; 'x' #$(id) %j")


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path) -> Jobs:
    """Jobs with a folder of runs of their own."""
    logs = tmp_path / "logs"
    logs.mkdir()
    return Jobs(cluster=cluster, logs=logs)


@pytest.fixture
def trial(cluster: Cluster, tmp_path: Path) -> Trial:
    return Trial(cluster=cluster, folder=tmp_path)


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path, several_jobs: None) -> Project:
    return make_project(cluster, tmp_path / "lab's folder")


@pytest.fixture
def without_sacct(tmp_path: Path) -> dict[str, str]:
    """Return an environment without accounting."""
    broken = tmp_path / "commands" / "sacct"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho Slurm accounting storage is disabled >&2\nexit 1\n")
    broken.chmod(0o755)
    return {"PATH": f"{broken.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def several_jobs(cluster: Cluster) -> None:
    """Let jobs run at once, for a test of preemption or of a busy cluster."""
    cluster.allow_jobs(-1)


@pytest.fixture(autouse=True)
def empty_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").clear()
