"""Site and partition are asked before a job."""

from pathlib import Path

import pytest

from tests.launch.conftest import DIGITS, Command, Launch


def test_a_request_that_the_cluster_refuses_fails_with_a_fix(
    launch: Launch, command: Command, slurm: None
) -> None:
    command("sbatch", "echo 'sbatch: error: invalid gres' >&2; exit 1")
    code, out, _ = launch("plan", DIGITS, "resources.hours=72")
    assert code == 1
    assert "fail  cluster       partition gpu allows 48:00:00, not 72:00:00: lower" in out
    out = launch("plan", DIGITS)[1]
    assert "fail  cluster       sbatch refuses --nodes=1 --gpus-per-node=1" in out
    assert "change resources.gpu" in out


def test_a_broken_site_fails(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("VENV", str(tmp_path))
    out = launch("plan", DIGITS)[1]
    assert f"fail  site          no virtualenv in {tmp_path}; create it with env/create.sh" in out
