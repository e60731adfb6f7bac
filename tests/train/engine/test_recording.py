"""On a GPU, records cost no wait: they are written a step late, with the times of the device."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.engine.pretend_gpu import PretendGpu
from train.engine.clocks import Clocks, DeviceClock
from train.engine.failure import RunFailure
from train.engine.loop import Loop
from train.engine.metrics import IntervalSums, LossAccumulator
from train.engine.numerics import NonFiniteCheck
from train.engine.stop import StopRequest

CUDA = torch.device("cuda", 0)


pytestmark = pytest.mark.usefixtures("group")


class Steps:
    """Steps that take the host `host_s` and the GPU `device_s`; the loss of step n is n."""

    def __init__(self, gpu: PretendGpu, *, host_s: float, device_s: float) -> None:
        self.gpu, self.times = gpu, {"host_s": host_s, "device_s": device_s}
        self.context: Any = None
        self.bad_at = 0

    def begin(self) -> None:
        self.gpu.launch(host_s=5.0, device_s=5.0)

    def take(self, step: int) -> Tensor:
        self.gpu.launch(**self.times)
        self.context.losses.add(torch.tensor(float(step)))
        self.context.finite.check_during_next_step()
        value = torch.tensor(float("nan") if step == self.bad_at else 1.0)
        self.context.finite.put(step, value)
        return torch.tensor(float(step))

    def fields(self, norm: Tensor) -> dict[str, Any]:
        return {"lr": self.context.state.step / 100, "grad_norm": norm}


class Context(SimpleNamespace):
    """The part of a training's context that the loop uses."""

    @property
    def at(self) -> dict[str, int]:
        return {"step": self.state.step, "images": self.state.images}


class Metrics(list[dict[str, Any]]):
    """The records, and the step at which the host was when each was written."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state, self.written_in = state, []

    def step(self, fields: dict[str, Any], *, steps: int) -> None:
        self.append(fields)
        self.written_in.append(self.state.step)

    def event(self, name: str, **fields: Any) -> None:
        pass


def recorded(gpu: PretendGpu, steps: Steps, *, every: int = 1, length: int = 8) -> Metrics:
    """Train `length` steps that save once, after the last, and return the records."""
    state = SimpleNamespace(step=0, images=0, interval=IntervalSums())
    finite = NonFiniteCheck(torch.device("cpu"))
    finite._ready = torch.cuda.Event(blocking=True)
    idle = SimpleNamespace(**dict.fromkeys(
        ("begin_step", "progress", "disarm", "close", "save", "wait"), lambda *_: None
    ))  # fmt: skip
    config = SimpleNamespace(
        train=SimpleNamespace(steps=length, global_batch=1),
        checkpoint=SimpleNamespace(every=length), log=SimpleNamespace(every=every),
    )  # fmt: skip
    clock, metrics = DeviceClock(CUDA), Metrics(state)
    context = Context(
        attempt=SimpleNamespace(
            config=config, ranks=SimpleNamespace(rank=0, device=CUDA),
            stop_signals=SimpleNamespace(request=lambda: StopRequest.GO_ON),
        ),
        layout=SimpleNamespace(tensor=1), state=state, clocks=Clocks(CUDA), device_clock=clock,
        losses=LossAccumulator(torch.device("cpu")), metrics=metrics, finite=finite,
        watchdog=idle,
    )  # fmt: skip
    steps.context = context
    idle.finished = list
    loop: Any = Loop
    loop(context=context, steps=steps, parts=[], saver=idle).train()
    return metrics


def intervals_s(records: Metrics, clock: str) -> list[float]:
    return [round(b[clock] - a[clock], 6) for a, b in itertools.pairwise(records)]


def test_no_record_waits_and_every_interval_is_one_step_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = PretendGpu(monkeypatch)
    records = recorded(gpu, Steps(gpu, host_s=0.01, device_s=0.2))
    assert gpu.drains == 3  # after the setup, for the save, and after it
    assert records.written_in == [2, 3, 4, 5, 6, 7, 8, 8]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert records[0]["train_s"] == pytest.approx(0.21)
    assert intervals_s(records, "train_s") == [0.2] * 7
    assert intervals_s(records, "time") == [0.2] * 7
    assert [record["loss"] for record in records] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [record["grad_norm"] for record in records] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [record["lr"] for record in records] == [n / 100 for n in range(1, 9)]


@pytest.mark.parametrize(("host_s", "device_s", "share"), [(0.2, 0.05, 1.0), (0.01, 0.2, 0.0)])
def test_a_record_tells_whether_the_host_or_the_gpu_was_late(
    host_s: float, device_s: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = PretendGpu(monkeypatch)
    records = recorded(gpu, Steps(gpu, host_s=host_s, device_s=device_s), every=2)
    assert [record["host_bound"] for record in records] == [share] * 4
    assert intervals_s(records, "train_s") == [2 * max(host_s, device_s)] * 3


def test_a_step_that_is_not_finite_is_not_recorded_but_the_one_before_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = PretendGpu(monkeypatch)
    steps, kept = Steps(gpu, host_s=0.01, device_s=0.2), []
    steps.bad_at = 4
    monkeypatch.setattr(Metrics, "step", lambda _, fields, steps: kept.append(fields["step"]))
    with pytest.raises(RunFailure, match="not finite at step 4"):
        recorded(gpu, steps)
    assert kept == [1, 2, 3]
