"""A page on the example runs, made once for each file of tests."""

import shutil

import pytest

from analysis.__main__ import main
from tests.analysis.report.example import example_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return example_runs(tmp_path_factory.mktemp("example") / "runs")


@pytest.fixture(scope="module")
def page(runs):
    out = runs.parent / "page" / "report.html"
    out.parent.mkdir()
    assert main(["report", str(runs), "--out", str(out)]) == 0
    return out


@pytest.fixture
def copied(runs, page, tmp_path):
    """A copy of the runs and their page, which a test may change."""
    shutil.copytree(runs.parent, tmp_path / "copy")
    return tmp_path / "copy"
