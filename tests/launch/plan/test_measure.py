"""`plan --measure` runs the true config on a node of each type of GPU. Slurm is a shell script."""

import subprocess
from pathlib import Path

import pytest

from launch.plan import measure as module
from launch.plan.measure import measure
from tests.launch.plan.conftest import Command, subject

SINFO = """
[[ $* != *%G* ]] || { echo 'n1|gpu:a40:2'; echo 'n2|gpu:a100:4'; exit; }
echo 'gpu*|2-00:00:00|1-infinite'
"""


def test_each_type_of_gpu_is_asked_by_a_job_of_its_own(command: Command, tmp_path: Path) -> None:
    command("sinfo", SINFO)
    command("srun", f'echo "$*" >> {tmp_path}/asked; echo "{{once}}"')
    lines = sorted(map(str, measure(subject("resources.gpus_per_node=2", "train.steps=7"))))
    asked = (tmp_path / "asked").read_text().splitlines()
    jobs = [line for line in asked if "--nodes=1" in line]
    assert len(jobs) == len(lines) == 2
    assert any("resources.gpu=a40" in line and "train.steps=7" in line for line in asked)
    assert any("resources.gpu=a100" in line for line in asked)
    assert all("once" in line for line in lines)


def test_a_run_without_gpus_is_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.CompletedProcess(args=[], returncode=3, stdout="no torch\n", stderr="")
    request = subject("resources.gpus_per_node=0")
    monkeypatch.setattr(module.subprocess, "run", lambda words, **_: run)
    (line,) = measure(request)
    assert (line.level, line.message) == ("fail", "no torch")


def test_without_slurm_a_run_is_measured_here(
    monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    command("sinfo", "echo 'Could not establish a configuration source' >&2; exit 1")
    monkeypatch.setattr(module, "_measured_on", lambda request, gpu: gpu)
    assert list(measure(subject("resources.gpus_per_node=1"))) == [None]


def test_several_nodes_are_not_measured() -> None:
    (line,) = measure(subject("resources.nodes=2"))
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
