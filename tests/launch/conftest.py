"""A site with its own folder of runs, and Slurm commands replaced by shell scripts."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.__main__ import main
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from runs.folder import ROOT

FITS = {
    "fits": True, "gib": {"total": 3.0, "peak": 2.0}, "capacity_gib": 44.7, "micro_batch": 8,
    "max_micro_batch": 64, "hours": 0.1,
    "step_s": {"value": 0.1, "low": 0.05, "high": 0.2, "source": "guess"},
}  # fmt: skip


@pytest.fixture
def real_forecast() -> None:
    """Ask `python -m train cost`, which takes seconds; otherwise every run fits on an A40."""


@pytest.fixture(autouse=True)
def _forecast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real_forecast" not in request.fixturenames:
        answer = ForecastAnswer(gpus={"a40": FITS})
        monkeypatch.setattr(forecast, "ask", lambda asked: [answer] * len(asked))


@pytest.fixture(autouse=True)
def site(logs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the site `local` with its runs below `tmp_path`; return the folder of runs."""
    monkeypatch.delenv("ACTIVATED", raising=False)
    monkeypatch.setenv("SITE", "local")
    monkeypatch.setenv("VENV", sys.prefix)
    monkeypatch.delenv("UMASK", raising=False)
    before = os.umask(0o077)
    os.umask(before)
    yield logs
    os.umask(before)


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


@pytest.fixture
def launch(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `python -m launch` here: exit code, stdout, stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(word) for word in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


DIGITS = ROOT / "configs" / "pretrain" / "digits.yaml"
