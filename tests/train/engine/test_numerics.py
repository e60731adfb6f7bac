"""A non-finite loss ends the run at its step; fp16 skips steps whose gradients overflow."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import expect, load
from configs.schema import Pretrain
from runs.attempt.close import close_attempt
from tests.real_runs import DIGITS, TINY, losses, opened, torchrun, trained
from train.engine.distributed import Ranks
from train.engine.failure import RunFailure
from train.engine.gradients import clip_factor, scale_gradients
from train.engine.numerics import LossScaler, NonFiniteCheck, set_precision
from train.pretrain import facts
from train.pretrain.train_state import make_train_state


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A device of compute capability 8.0; the flags are as torch sets them by default."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    torch.backends.cudnn.allow_tf32 = True
    yield torch.device("cuda", 0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True


def tf32() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "tf32"])
def test_products_and_convolutions_use_tf32_only_if_the_precision_is_tf32(
    precision: str, gpu: torch.device
) -> None:
    set_precision(precision, gpu)
    assert tf32() == (precision == "tf32", precision == "tf32")


@pytest.mark.parametrize("enabled", [True, False])
def test_a_deterministic_training_uses_only_such_algorithms(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    keys = [*TINY, f"train.deterministic={str(enabled).lower()}"]
    config = expect(load(DIGITS, keys), Pretrain, source=DIGITS)
    alone = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))
    try:
        make_train_state(config, layout=divide(config, world=1), ranks=alone)
        assert torch.are_deterministic_algorithms_enabled() == enabled
        assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if enabled else None)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("gpu")
def test_training_sets_it_before_the_first_product(tmp_path: Path) -> None:
    config = expect(load(DIGITS, [*TINY]), Pretrain, source=DIGITS)
    layout = divide(config, world=1)
    alone = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))
    make_train_state(config, layout=layout, ranks=alone)
    assert tf32() == (False, False)


@pytest.mark.parametrize(
    ("precision", "compute", "gather"),
    [
        ("tf32", "tfloat32", "float32"),
        ("fp32", "float32", "float32"),
        ("bf16",) + ("bfloat16",) * 2,
    ],
)
def test_the_manifest_tells_tf32_from_fp32(precision: str, compute: str, gather: str) -> None:
    keys = [f"train.precision={precision}", "layout.shard=2", "resources.gpus_per_node=2"]
    config = expect(load(DIGITS, keys), Pretrain, source=DIGITS)
    types = facts._dtypes(config, divide(config, world=2))
    assert (types["compute"], types["gather"]) == (compute, gather)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_precision_that_the_gpu_only_emulates_is_refused(
    precision: str, gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(ConfigError, match=r"Tesla T4 has 7\.5: set it to fp16"):
        set_precision(precision, gpu)
    set_precision("fp16", gpu)


def test_tf32_on_a_cpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="tf32 needs an NVIDIA GPU"):
        set_precision("tf32", torch.device("cpu"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_non_finite_value_is_reported_with_its_step(value: float) -> None:
    finite = NonFiniteCheck(torch.device("cpu"))
    finite.check()
    finite.put(1, torch.tensor(3.0, dtype=torch.float64))
    with pytest.raises(RunFailure, match="not finite at step 2") as failure:
        finite.put(2, torch.tensor(value))
    assert failure.value.reason == "nan"


def test_a_gpu_that_waits_for_its_host_is_counted() -> None:
    class Event:
        complete = iter([True, False, True])

        def record(self) -> None: ...

        def synchronize(self) -> None: ...

        def query(self) -> bool:
            return next(self.complete)

    finite = NonFiniteCheck(torch.device("cpu"))
    finite._ready = Event()
    finite.check_during_next_step()
    for step in (1, 2, 3):
        finite.put(step, torch.tensor(1.0))
        finite.check_during_next_step()
    finite.put(4, torch.tensor(1.0))
    finite.check()  # the host waits for the device, which is no sign of either
    assert finite.host_bound() == {"host_bound": 2 / 3}
    assert finite.host_bound() == {}


# Gradients of four numbers; fp16 overflows in the second, third and fifth step.
_GRADIENTS = [
    [3e-4, -4e-4, 1e-5, 0.0], [float("inf"), 1.0, 0.0, 0.0], [float("nan"), 1.0, 0.0, 0.0],
    [1e-4, 2e-4, 3e-4, 4e-4], [-float("inf"), 1.0, 0.0, 0.0], [7e-4, -1e-4, 1e-4, 2e-4],
    [1e-3, 5e-4, -2e-4, 1e-4],
]  # fmt: skip


def stepped(clip: float | None, *, fused: bool) -> tuple[list[list[float]], list[float], list[int]]:
    """Weights, scale and good steps after each step: by the scaler, or by separate operations."""
    model = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.constant_(model.weight, 0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
    scaler, weights, scales, good = LossScaler(fp16=True, patience=2), [], [], []
    scale, count = scaler.scale.item(), 0
    for gradient in _GRADIENTS:
        model.weight.grad = torch.tensor([gradient]) * scale
        norm = model.weight.grad.norm()
        if fused:
            scaler.step(optimizer, norm / scaler.scale, clip=clip)
            scale, count = scaler.scale.item(), int(scaler.good)
        elif norm.isfinite():
            scale_gradients(model, clip_factor(norm / scale, clip) / scale)
            optimizer.step()
            count += 1
            scale, count = (scale * 2, 0) if count == 2 else (scale, count)
        else:
            scale, count = scale / 2, 0
        weights.append(model.weight.flatten().tolist())
        scales.append(scale)
        good.append(count)
    return weights, scales, good


def test_the_fused_step_without_clipping_equals_separate_operations_bit_for_bit() -> None:
    weights, scales, good = stepped(None, fused=True)
    assert (weights, scales, good) == stepped(None, fused=False)
    assert scales == [2.0**k for k in (16, 15, 14, 14, 13, 13, 14)]
    assert weights[0] == weights[1] == weights[2] != weights[3] == weights[4]


def test_clipping_in_the_fused_step_adds_two_roundings() -> None:
    weights, scales, good = stepped(3e-4, fused=True)
    separate = stepped(3e-4, fused=False)
    assert (scales, good) == separate[1:]
    torch.testing.assert_close(
        torch.tensor(weights), torch.tensor(separate[0]), rtol=2 * 2**-23, atol=0
    )


def test_an_overflow_is_excused_until_the_scale_is_below_the_least() -> None:
    scaler, bad = LossScaler(fp16=True), torch.tensor(float("inf"))
    assert scaler.excused(bad + 1, bad).item() == 0
    assert scaler.excused(torch.tensor(3.0), torch.tensor(2.0)).item() == 3
    assert scaler.excused(bad, torch.tensor(2.0)).item() == float("inf")  # the loss alone
    scaler.scale.fill_(LossScaler.LEAST / 2)
    assert scaler.excused(bad + 1, bad).item() == float("inf")
    assert LossScaler(fp16=False).excused(bad, bad) is bad


@pytest.mark.parametrize("clip", [2.5, None])
def test_without_fp16_gradients_are_only_clipped(clip: float | None) -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    LossScaler(fp16=False).step(optimizer, torch.tensor(5.0), clip=clip)
    moment = optimizer.state[model.weight]["exp_avg"] / 0.1
    expected = torch.tensor([[3.0, 4.0]]) / (2 if clip else 1)
    torch.testing.assert_close(moment, expected)


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
