"""The placement of a rank: the GPU it takes, or the reason why it must not train without one."""

from pathlib import Path

import pytest
import torch

from configs.checks import compute_node
from configs.errors import ConfigError
from train.engine.distributed import read_ranks

OLD = "The NVIDIA driver on your system is too old (found version 12040). Please update it."
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose driver is too old for this torch; outside Slurm."""
    file = tmp_path / "version"
    file.write_text(DRIVER)
    monkeypatch.setattr(compute_node, "_NVIDIA_DRIVER", file)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("SLURM_JOB_ID", "SLURM_GPUS_ON_NODE", "SLURM_CLUSTER_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    say(OLD, monkeypatch)
    return file


def say(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(torch.cuda, "init", init)


def test_a_gpu_that_torch_cannot_use_is_not_left_idle(driver: Path) -> None:
    with pytest.raises(ConfigError, match=r"driver 550\.54\.15\): .*too old.*\(TORCH, TORCH_INDEX"):
        read_ranks()


@pytest.mark.parametrize("loaded", [True, False])
def test_a_job_that_was_given_gpus_does_not_train_on_the_cpu(
    driver: Path, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "2")
    if not loaded:
        driver.unlink()
    with pytest.raises(ConfigError, match=r"550" if loaded else "not loaded"):
        read_ranks()


@pytest.mark.parametrize(
    "environment",
    [
        {"CUDA_VISIBLE_DEVICES": ""},
        {"SLURM_JOB_ID": "7"},
        {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "2", "SLURM_CLUSTER_NAME": "onemachine"},
    ],
    ids=["hidden", "a job without GPUs", "GPUs in name only"],
)
def test_a_cpu_is_used_where_no_gpu_is_asked_for(
    driver: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert read_ranks().device == torch.device("cpu")


def test_a_gpu_that_broke_down_is_a_fault_of_the_node(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("CUDA unknown error - this may be due to an incorrectly set up environment", monkeypatch)
    with pytest.raises(RuntimeError, match="unknown error"):
        read_ranks()


@pytest.mark.parametrize("visible", [1, 2])
def test_a_rank_takes_the_gpu_of_its_number(visible: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    if visible == 2:
        assert read_ranks().device == torch.device("cuda", 1)
    else:
        with pytest.raises(ValueError, match="local rank 1 has no GPU: 1 are visible"):
            read_ranks()
