"""A non-finite loss ends the run at its step; fp16 skips steps whose gradients overflow."""

import json
from pathlib import Path

import pytest
import torch

from configs.attempt.close import close_attempt
from tests.real_runs import DIGITS, TINY, losses, opened, torchrun, trained
from train.engine.failure import RunFailure
from train.engine.numerics import LossScaler, NonFiniteCheck


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_non_finite_value_is_reported_with_its_step(value: float) -> None:
    finite = NonFiniteCheck(torch.device("cpu"))
    finite.check()
    finite.put(1, torch.tensor(3.0, dtype=torch.float64))
    with pytest.raises(RunFailure, match="not finite at step 2") as failure:
        finite.put(2, torch.tensor(value))
    assert failure.value.reason == "nan"


def unscaled(scale: LossScaler, *gradient: float) -> tuple[bool, list[float]]:
    """Whether a step with this gradient may be taken, and the gradient after unscaling."""
    model = torch.nn.Linear(len(gradient), 1, bias=False)
    model.weight.grad = torch.tensor([gradient]) * scale.value
    taken = scale.unscale(model, model.weight.grad.norm(), torch.tensor(1.0))
    return taken, model.weight.grad.flatten().tolist()


def test_an_overflow_halves_the_scale_and_skips_the_step() -> None:
    scale = LossScaler(fp16=True, patience=3)
    assert unscaled(scale, 3.0, 4.0) == (True, [3.0, 4.0])
    before = scale.value
    assert not unscaled(scale, float("inf"), 1.0)[0]
    assert (scale.value, scale.good) == (before / 2, 0)
    for _ in range(3):
        assert unscaled(scale, 3.0, 4.0)[0]
    assert (scale.value, scale.good) == (before, 0)


def test_a_scale_below_the_least_ends_the_run() -> None:
    scale = LossScaler(fp16=True)
    scale.value = LossScaler.LEAST
    with pytest.raises(RunFailure, match="at any loss scale"):
        unscaled(scale, float("nan"))


def test_without_fp16_gradients_are_only_clipped() -> None:
    scale = LossScaler(fp16=False)
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert scale.unscale(model, torch.tensor(5.0), torch.tensor(0.5))
    assert model.weight.grad.flatten().tolist() == [1.5, 2.0]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_a_non_finite_loss_ends_there_and_keeps_its_older_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path))
    # At this learning rate the weights overflow float32 within a few steps.
    diverging = ["optimizer.lr=1e38", "optimizer.warmup_steps=0", "optimizer.clip=null"]
    run = opened(
        DIGITS, [*TINY, *diverging, "train.steps=50", "checkpoint.every=1", "checkpoint.keep=50"]
    )
    with pytest.raises(AssertionError, match="not finite"):
        torchrun(run, ranks=ranks)
    assert close_attempt(run.attempt(1), status=1).event == "failed"
    last = list(run.records())[-1]
    assert last["reason"] == "nan"
    step = int(last["message"].rpartition(" ")[2])
    saved = [int(path.name[5:]) for path in run.checkpoints.glob("step-*")]
    assert sorted(saved) == list(range(1, step))
    assert json.loads((run.attempt(1) / "error.json").read_text())["reason"] == "nan"


def test_fp16_learns_as_float32_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path))
    keys = [*TINY, "train.steps=30", "log.every=1"]
    exact = losses(trained(tmp_path, keys))
    half = losses(trained(tmp_path, [*keys, "train.precision=fp16"]))
    assert exact != half
    assert max(abs(exact[step] - half[step]) for step in exact) < 0.02
