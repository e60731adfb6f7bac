"""The placement of a rank: the GPU it takes, or the reason why it must not train without one."""

import os
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


MIG = [f"MIG-{number}" for number in ("a1", "a2", "b1")]
NVIDIA_SMI = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)
  MIG 3g.20gb     Device  0: (UUID: MIG-a1)
  MIG 3g.20gb     Device  1: (UUID: MIG-a2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)
  MIG 3g.20gb     Device  0: (UUID: MIG-b1)
"""


@pytest.fixture
def mig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards with instances, of which CUDA shows a process one."""
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{NVIDIA_SMI}'")
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda gpu: (8, gpu))
    monkeypatch.delenv("AGENT_MIG_INSTANCES", raising=False)


def begin_rank(
    rank: int, instances: list[str], monkeypatch: pytest.MonkeyPatch, *, ranks: int
) -> None:
    """Start as torchrun starts a local rank; undone with the test."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(instances))
    monkeypatch.setenv("AGENT_MIG_INSTANCES", "")
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_sees_its_own_mig_instance_and_so_do_the_processes_that_it_starts(
    rank: int, mig: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_rank(rank, [MIG[0], MIG[2]], monkeypatch, ranks=2)
    for _ in ("rank", "its child"):
        placed = read_ranks()
        assert (placed.device, placed.local_rank) == (torch.device("cuda", 0), rank)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == (MIG[0], MIG[2])[rank]


def test_ranks_that_share_a_card_by_mig_are_refused(
    mig: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_rank(1, MIG, monkeypatch, ranks=3)
    with pytest.raises(ConfigError, match=r"share a card by MIG.*resources\.gpus_per_node=1"):
        read_ranks()
    # One rank may take one of two instances of its card.
    begin_rank(0, MIG[:2], monkeypatch, ranks=1)
    assert read_ranks().device == torch.device("cuda", 0)


def test_a_rank_beyond_the_mig_instances_does_not_train_on_the_cpu(
    mig: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_rank(1, MIG[:1], monkeypatch, ranks=2)
    with pytest.raises(ValueError, match="local rank 1 has no GPU: 1 are visible"):
        read_ranks()


def test_whole_gpus_are_taken_by_number(mig: None, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_rank(1, ["0", "1"], monkeypatch, ranks=2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert read_ranks().device == torch.device("cuda", 1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


WHEEL = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("capability", "builds", "runs"),
    [
        ((7, 0), WHEEL, False),
        ((7, 5), WHEEL, True),
        ((8, 9), WHEEL, True),
        ((8, 7), ["sm_80", "sm_89"], True),
        ((11, 0), WHEEL, False),
        ((11, 0), [*WHEEL, "compute_100"], True),
        ((10, 3), ["sm_90a", "sm_100f"], True),
        ((9, 4), ["gfx942"], True),
    ],
)
def test_a_gpu_without_kernels_in_the_wheel_is_refused(
    capability: tuple[int, int], builds: list[str], runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: builds)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100-SXM2-32GB")
    if runs:
        assert read_ranks().device == torch.device("cuda", 0)
    else:
        with pytest.raises(ConfigError, match=r"no kernels for Tesla V100.*\(TORCH, TORCH_INDEX"):
            read_ranks()
