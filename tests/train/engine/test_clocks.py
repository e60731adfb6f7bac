"""The clock of a device tells when the device, not the host, reached a point."""

import pytest
import torch

from tests.train.engine.pretend_gpu import PretendGpu
from train.engine.clocks import DeviceClock


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
