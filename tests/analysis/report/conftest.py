"""A page and a folder on the example runs, made once for each file of tests."""

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


@pytest.fixture(scope="module")
def public(runs):
    out = runs.parent / "public"
    assert main(["report", str(runs), "--folder", str(out)]) == 0
    return out


@pytest.fixture
def copied(runs, page, public, tmp_path):
    """A copy of the runs, their page and their folder, which a test may change."""
    shutil.copytree(runs.parent, tmp_path / "copy")
    return tmp_path / "copy"
