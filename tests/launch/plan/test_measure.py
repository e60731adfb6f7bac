"""`plan --measure` runs the true config on a node. Slurm is a shell script."""

import subprocess
from pathlib import Path

import pytest

from launch.plan import measure as module
from launch.plan.measure import measure
from launch.submit.request import run_request
from launch.submit.script import RunRequest
from tests.launch.conftest import DIGITS, Command


def subject(*overrides: str) -> RunRequest:
    return run_request(DIGITS, list(overrides), site_name=None, extra={})


def test_a_run_with_gpus_is_measured_by_a_job_of_its_own(command: Command, tmp_path: Path) -> None:
    command("srun", f'echo "$*" >> {tmp_path}/asked; echo "{{once}}"')
    line = measure(subject("resources.gpus_per_node=2", "resources.gpu=a40", "train.steps=7"))
    asked = (tmp_path / "asked").read_text()
    assert "--gpus-per-node=a40:2" in asked
    assert "--nodes=1" in asked
    assert "train.steps=7" in asked
    assert line.message == "{once}"


@pytest.mark.parametrize("gpus", [0, 1])
def test_without_gpus_or_a_cluster_a_run_is_measured_here(
    monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    def no_cluster(*words: str, flags: list[str]) -> None:
        raise module.client.NoSlurm("srun finds no cluster")

    monkeypatch.setattr(module.client, "run_on_node", no_cluster)
    run = subprocess.CompletedProcess(args=[], returncode=3, stdout="no torch\n", stderr="")
    request = subject(f"resources.gpus_per_node={gpus}")
    monkeypatch.setattr(module.subprocess, "run", lambda words, **_: run)
    line = measure(request)
    assert (line.level, line.message) == ("fail", "no torch")


def test_several_nodes_are_not_measured() -> None:
    line = measure(subject("resources.nodes=2"))
    assert (line.level, line.fix) == ("warn", "resources.nodes=1")


def test_ranks_share_the_cores_as_in_a_job(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "activate.sh").write_text(
        'torchrun() { echo "$OMP_NUM_THREADS"; }\nexec() { "$@"; }\nexport OMP_NUM_THREADS=99\n'
        'nproc() { echo "${OMP_NUM_THREADS:-8}"; }\nenv() { unset OMP_NUM_THREADS; "${@:3}"; }\n'
    )
    for ranks, threads in ((2, "4"), (16, "1")):
        words = ["bash", "-c", module._RUN, "bash", str(tmp_path), str(ranks), "CONFIG"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout == f"{threads}\n"
