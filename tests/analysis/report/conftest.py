"""A site of the example runs, made once for each file of tests."""

import shutil

import pytest

from analysis.__main__ import main
from tests.analysis.report.example import example_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return example_runs(tmp_path_factory.mktemp("example") / "runs")


@pytest.fixture(scope="module")
def public(runs):
    out = runs.parent / "public"
    assert main(["report", "--site", str(runs), "--out", str(out)]) == 0
    return out


@pytest.fixture
def site(runs, public, tmp_path):
    """A copy of the runs and their site, which a test may change."""
    shutil.copytree(runs.parent, tmp_path / "copy")
    return tmp_path / "copy" / "public"
