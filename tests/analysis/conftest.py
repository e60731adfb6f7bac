"""Fixtures that ask commands about runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

Asked = Callable[..., Any]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any, str]]:
    """Gives the exit code of a command, what it prints as JSON, and its remarks."""

    def ask(*argv: object) -> tuple[int, Any, str]:
        code = main([*map(str, argv), "--json"])
        output = capsys.readouterr()
        return code, json.loads(output.out or "null"), output.err

    return ask


@pytest.fixture
def asked(said: Callable[..., tuple[int, Any, str]]) -> Asked:
    """Gives what a command that succeeds prints as JSON."""

    def ask(*argv: object) -> Any:
        code, answer, remarks = said(*argv)
        assert code == 0, remarks
        return answer

    return ask


@pytest.fixture
def plant(tmp_path: Path) -> Callable[..., list[Path]]:
    """Writes runs by name, and gives their folders."""

    def write(**truths: SyntheticRun) -> list[Path]:
        return [generate_run(tmp_path / name, truth) for name, truth in truths.items()]

    return write
