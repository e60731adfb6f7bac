"""Remarks of the commands."""

import pytest

from analysis.table import remark


def test_a_remark_on_many_runs_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    remark(["a: no loss", "2 runs wait", "b: no loss", "c: no step", "2 runs wait"])
    assert capsys.readouterr().err.splitlines() == [
        "a and 1 more: no loss",
        "2 runs wait",
        "c: no step",
    ]
