"""Arrivals are the times at which devices, not hosts, reach the collective of a step."""

import json
from pathlib import Path

import pytest
import torch

from tests.train.engine.pretend_gpu import PretendGpu
from train.engine.clocks import DeviceClock
from train.engine.metrics import ArrivalLog

STEP_S = 0.2


def write(folder: Path, gpu: PretendGpu, *, rank: int, forward_s: float, device: str) -> None:
    gpu.now = gpu.free_at = 1000.0
    clock = DeviceClock(torch.device(device))
    log = ArrivalLog(folder, rank=rank, clock=clock)
    clock.reached(clock.point())
    for step in range(1, 41):
        gpu.launch(host_s=0.0, device_s=forward_s)
        log.mark()
        # All ranks end a step together.
        gpu.now = gpu.free_at = 1000.0 + step * STEP_S
        log.write(step, clock.reached(log.last))
    log.close()


def arrivals(folder: Path, *, rank: int) -> list[float]:
    lines = (folder / "ranks" / f"arrivals-{rank:05d}.jsonl").read_text().splitlines()
    return [json.loads(line)["time"] for line in lines]


@pytest.mark.parametrize(("device", "later_s"), [("cuda", 0.06), ("cpu", 0.0)])
def test_a_slow_gpu_arrives_later_though_the_hosts_are_in_step(
    device: str, later_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = PretendGpu(monkeypatch)
    (tmp_path / "ranks").mkdir()
    for rank, forward_s in enumerate((0.05, 0.11, 0.05)):
        write(tmp_path, gpu, rank=rank, forward_s=forward_s, device=device)
    pairs = zip(arrivals(tmp_path, rank=0), arrivals(tmp_path, rank=1), strict=True)
    assert [slow - fast for fast, slow in pairs] == pytest.approx([later_s] * 40, abs=1e-3)


def test_a_device_clock_does_not_drift_away_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = PretendGpu(monkeypatch)
    clock = DeviceClock(torch.device("cuda"))
    clock.reached(clock.point())
    for _ in range(100):
        gpu.launch(host_s=0.0, device_s=1.0)
        point = clock.point()
        point.event.at -= 1e-3 * (point.event.at - 1000)  # the device counts 0.1 % too little
        gpu.now = gpu.free_at
        reached = clock.reached(point)
        assert gpu.now - 1.01 <= reached <= gpu.now
        point = clock.point()
        assert clock.reached(point) == gpu.now
