"""The manifest holds all that decides the speed of a GPU, by an allow-list."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from analysis.read.machine import machine
from configs.checks import compute_node
from train.engine.distributed import Ranks
from train.engine.environment import rank_placement, versions


def answer_of_nvidia_smi(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "nvidia-smi"
    file.write_text(f'#!/bin/sh\n[ "$2" = --id=GPU-7b1f ] && echo "{line}"\n')
    file.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("line", "found"),
    [("700.00", 700.0), ("[N/A]", None), ("No devices were found", None)],
)
def test_the_power_limit_is_kept(
    line: str, found: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_of_nvidia_smi(line, tmp_path, monkeypatch)
    properties = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=85e9, uuid="7b1f")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    device = torch.device("cuda", 0)
    facts = rank_placement(Ranks(rank=0, world=1, local_rank=0, local_world=1, device=device))
    assert machine({"placement": [facts]}).get("power_limit_w") == (found and str(found))


def test_versions_name_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "version"
    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Aug 17 2025")
    monkeypatch.setattr(compute_node, "_NVIDIA_DRIVER", file)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 30, 7))
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92600)
    found = versions()
    assert found["driver"] == "580.65.06"
    assert {"cudnn", "triton", "nccl"} <= set(found)
