"""The small parts of the engine: schedule, EMA, gradients, clocks, stop signals, console."""

import itertools
import os
import signal
from pathlib import Path

import pytest
import torch

from configs.schema import Pretrain
from configs.schema.training import Optimizer
from runs.folder import RunFolder
from tests.real_runs import in_this_process
from train.engine.clocks import Clocks
from train.engine.ema import EMA
from train.engine.gradients import clip_factor, gradient_norm, scale_gradients
from train.engine.metrics import console_line
from train.engine.stop import StopRequest, StopSignals
from train.pretrain.optimizer import make_optimizer


def test_the_learning_rate_warms_up_stays_and_decays() -> None:
    config = Optimizer(lr=1.0, warmup_steps=10, decay=0.5, decay_to=0.1)
    rates = [config.rate(step=step, steps=100) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:51] == [1.0] * 42
    assert rates[99] == pytest.approx(0.1 + 0.9 / 50)
    assert all(a >= b for a, b in itertools.pairwise(rates[9:]))


@pytest.mark.parametrize(
    ("shape", "rates"),
    [
        ("linear", [1.0, 0.75, 0.5, 0.25]),
        ("sqrt", [1.0, 0.5, 0.2929, 0.1340]),
        ("cosine", [1.0, 0.8536, 0.5, 0.1464]),
    ],
)
def test_the_decay_has_the_shape_of_its_formula(shape: str, rates: list[float]) -> None:
    config = Optimizer(lr=1.0, decay=0.4, decay_shape=shape)
    found = [config.rate(step=step, steps=10) for step in range(1, 11)]
    assert found[:6] == [1.0] * 6
    assert found[6:] == pytest.approx(rates, abs=1e-4)


def test_only_matrices_have_weight_decay() -> None:
    model = torch.nn.Linear(3, 3)
    groups = make_optimizer(model, Pretrain(optimizer=Optimizer(weight_decay=0.1))).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert [parameter.ndim for group in groups for parameter in group["params"]] == [2, 1]


def test_without_a_decay_there_is_no_ema_and_the_weights_are_used() -> None:
    model = torch.nn.Linear(2, 2)
    ema = EMA(model, decay=None, warmup=True)
    before = model.weight.detach().clone()
    ema.update(1)
    with ema.swapped_in():
        assert torch.equal(model.weight, before)
    assert ema.weights == {}


@pytest.mark.parametrize(("limit", "after"), [(1.0, 1.0), (None, 5.0), (10.0, 5.0)])
def test_gradients_are_clipped_to_a_norm_and_the_norm_before_is_returned(
    limit: float | None, after: float
) -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    norm = gradient_norm(model)
    scale_gradients(model, clip_factor(norm, limit))
    assert norm.item() == pytest.approx(5.0)
    assert model.weight.grad.norm().item() == pytest.approx(after, rel=1e-5)


def test_the_ema_follows_its_formula_and_swaps_in_and_out_bit_for_bit() -> None:
    model = torch.nn.Linear(4, 4)
    ema = EMA(model, decay=0.9, warmup=False)
    start = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1)
    live = model.weight.detach().clone()
    ema.update(1)
    expected = 0.9 * start + 0.1 * live
    torch.testing.assert_close(ema.weights["weight"], expected)
    mean = ema.weights["weight"].clone()
    with ema.swapped_in():
        assert torch.equal(model.weight, mean)
    assert torch.equal(model.weight, live)
    assert torch.equal(ema.weights["weight"], mean)


def test_a_young_ema_forgets_its_start_faster() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    ema = EMA(model, decay=0.9999, warmup=True)
    with torch.no_grad():
        model.weight.fill_(1.0)
        ema.weights["weight"].fill_(0.0)
    ema.update(1)
    assert ema.weights["weight"].item() == pytest.approx(1 - 2 / 11)


def test_clocks_book_all_time_once_and_the_wait_for_data_to_training_too() -> None:
    clocks = Clocks(torch.device("cpu"))
    begin = clocks._mark
    for purpose in ("setup", "data", "train", "data", "save", "sample"):
        clocks.lap(purpose)
    booked = sum(seconds for name, seconds in clocks.seconds.items() if name != "data")
    assert booked == pytest.approx(clocks._mark - begin, abs=1e-9)
    assert clocks.seconds["train"] > clocks.seconds["data"] > 0


@pytest.fixture
def signals(tmp_path: Path):
    (tmp_path / "attempts" / "001").mkdir(parents=True)
    with in_this_process():
        yield StopSignals(RunFolder(tmp_path), attempt=1, poll_s=0)


@pytest.mark.parametrize(
    ("number", "stop_request"),
    [
        (signal.SIGUSR1, StopRequest.PAUSE),
        (signal.SIGTERM, StopRequest.STOP),
        (signal.SIGINT, StopRequest.STOP),
    ],
)
def test_a_signal_is_a_stop_request(
    signals: StopSignals, number: signal.Signals, stop_request: StopRequest
) -> None:
    assert signals.request() is StopRequest.GO_ON
    os.kill(os.getpid(), number)
    assert signals.request() is stop_request


@pytest.mark.parametrize(
    ("file", "stop_request"),
    [
        ("STOP", StopRequest.STOP),
        ("attempts/001/STOP", StopRequest.STOP),
        ("attempts/001/PAUSE", StopRequest.PAUSE),
        ("attempts/002", StopRequest.LEAVE),
    ],
)
def test_a_file_is_a_stop_request(
    signals: StopSignals, tmp_path: Path, file: str, stop_request: StopRequest
) -> None:
    (tmp_path / file).touch()
    assert signals.request() is stop_request


def test_the_strongest_request_wins(signals: StopSignals, tmp_path: Path) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signals.request() is StopRequest.STOP
    (tmp_path / "attempts" / "002").mkdir()
    assert signals.request() is StopRequest.LEAVE


def test_the_console_shows_the_fields_that_a_record_has() -> None:
    fields = {"step": 5, "loss": 1.23456, "lr": 1e-4, "grad_norm": 0.5, "train_s": 2.0}
    assert console_line(fields, steps=800) == (
        "step   5/800  loss 1.235  lr 0.0001  grad_norm 0.5  train 2.0 s"
    )
