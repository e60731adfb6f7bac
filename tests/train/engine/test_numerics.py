"""A non-finite loss ends the run at its step; the precision is that of the config."""

import json
import os
from collections.abc import Iterator

import pytest
import torch

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import expect, load
from configs.schema import Pretrain
from runs.attempt.close import close_attempt
from tests.real_runs import DIGITS, TINY, opened, torchrun
from train.engine.distributed import Ranks
from train.engine.failure import RunFailure
from train.engine.gradients import clipped_step
from train.engine.numerics import NonFiniteCheck, set_precision
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


@pytest.mark.parametrize("precision", ["fp32", "bf16", "tf32"])
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
    with pytest.raises(ConfigError, match=r"Tesla T4 has 7\.5: set it to fp32"):
        set_precision(precision, gpu)
    set_precision("fp32", gpu)


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


@pytest.mark.parametrize("clip", [2.5, None])
def test_gradients_are_clipped_in_the_fused_step(clip: float | None) -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    clipped_step(optimizer, torch.tensor(5.0), limit=clip)
    moment = optimizer.state[model.weight]["exp_avg"] / 0.1
    expected = torch.tensor([[3.0, 4.0]]) / (2 if clip else 1)
    torch.testing.assert_close(moment, expected)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_a_non_finite_loss_ends_there_and_keeps_its_older_checkpoints(
    ranks: int,
) -> None:
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
