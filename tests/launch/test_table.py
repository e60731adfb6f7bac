"""Tables of the launcher are safe to open in a spreadsheet."""

import pytest

from configs.table import show


def test_a_spreadsheet_is_given_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"run": "=1+1", "x": -1.5}, {"run": "+1e3", "x": None}, {"run": "@a", "x": 1}], "csv")
    assert capsys.readouterr().out == "run,x\n'=1+1,-1.5\n+1e3,\n'@a,1\n"
