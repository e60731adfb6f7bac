"""Stragglers are found by the times at which devices, not hosts, reach the collective of a step."""

from pathlib import Path

import pytest
import torch

from analysis.detect.stragglers import find_late
from analysis.read.arrivals import read_arrivals
from train.engine import metrics
from train.engine.metrics import ArrivalLog

STEP_S = 0.2


class Gpu:
    """The clocks of a GPU and of its host, which launches a step in no time and then waits."""

    now = 1_700_000_000.0
    queued_s = 0.0

    class Event:
        """An event that completes when the work queued before it has."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = Gpu.now + Gpu.queued_s

        def elapsed_time(self, end: "Gpu.Event") -> float:
            assert Gpu.queued_s == 0, "an event that has not completed has no time"
            return 1000 * (end.at - self.at)


def write(folder: Path, *, rank: int, forward_s: float, device: str) -> None:
    Gpu.now, Gpu.queued_s = 1_700_000_000.0, 0.0
    log = ArrivalLog(folder, rank=rank, device=torch.device(device))
    log.device_is_drained()
    for step in range(1, 41):
        Gpu.queued_s = forward_s
        log.mark()
        # All ranks end a step together.
        Gpu.now, Gpu.queued_s = Gpu.now + STEP_S, 0.0
        log.write(step)
    log.close()


@pytest.mark.parametrize(("device", "found"), [("cuda", [(1, 0.06)]), ("cpu", [])])
def test_a_slow_gpu_is_found_though_the_hosts_are_in_step(
    device: str, found: list[tuple[int, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics.time, "time", lambda: Gpu.now)
    monkeypatch.setattr(torch.cuda, "Event", Gpu.Event)
    (tmp_path / "ranks").mkdir()
    for rank, forward_s in enumerate((0.05, 0.11, 0.05)):
        write(tmp_path, rank=rank, forward_s=forward_s, device=device)
    late = find_late(read_arrivals(tmp_path / "ranks"), attempt=1)
    assert [(each.rank, round(each.late_s, 4)) for each in late] == found
