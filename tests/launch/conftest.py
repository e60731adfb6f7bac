"""A site with its own folder of runs, and Slurm commands replaced by shell scripts."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.yaml12 import dump_yaml
from launch.__main__ import main
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from runs.folder import ROOT

Launch = Callable[..., tuple[int, str, str]]
Command = Callable[[str, str], Path]

DIGITS = ROOT / "configs" / "pretrain" / "digits.yaml"
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
def slurm(command: Command, tmp_path: Path) -> None:
    """A cluster with two partitions that accepts every job and numbers them from 101."""
    command("sinfo", r"[[ $* == *%D* ]] || printf 'gpu*|2-00:00:00\nlong|infinite\n'")
    command(
        "sbatch",
        f"""[[ $1 == --test-only ]] && exit 0
        n=$(($(cat {tmp_path}/jobs 2>/dev/null || echo 100) + 1)); echo $n >{tmp_path}/jobs
        cp "$1" {tmp_path}/$n.sbatch; echo Submitted batch job $n""",
    )
    command("squeue", f'echo "$@" >>{tmp_path}/squeue; cat {tmp_path}/queue 2>/dev/null; exit 0')
    command("sacct", "exit 1")
    command("srun", "exit 0")


@pytest.fixture
def study(slurm: None, tmp_path: Path) -> Path:
    """A study of two GPUs x two batches, repeated twice."""
    tiny = {"model.width": 32, "model.heads": 4, "model.depth": 1, "train.steps": 10}
    tree = {
        "kind": "study", "question": "Which GPU?", "base": str(DIGITS), "set": tiny,
        "axes": {"resources.gpu": ["a40", "a100"], "train.global_batch": [8, 16]},
        "repeats": 2, "throttle": 3,
    }  # fmt: skip
    file = tmp_path / "gpus.yaml"
    file.write_text(dump_yaml(tree))
    return file


@pytest.fixture
def launch(capsys: pytest.CaptureFixture[str]) -> Launch:
    """Return a function that runs `python -m launch` here: exit code, stdout, stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(word) for word in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run
