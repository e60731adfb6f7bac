"""Schedule-free AdamW has the numbers of its authors, and its average is what is evaluated."""

from pathlib import Path

import pytest
import torch
from torch import nn

from configs.errors import ConfigError
from configs.load import load
from configs.schema.training import Optimizer
from tests.real_runs import DIGITS, TINY, trained
from train.pretrain.optimizer import ScheduleFreeAdamW
from train.weights.export import export

KEYS = ["optimizer.kind=schedule_free", "optimizer.decay=0.0", "train.ema_decay=null"]
# schedulefree 1.4.1 from PyPI: AdamWScheduleFree(lr=0.1, betas=(0.9, 0.95), weight_decay=0.1,
# warmup_steps=3), eight steps of the problem below; x by its `eval()`.
Y = [0.4454878, -1.5166336, 0.8990082]
Z = [0.1247706, -1.2660458, 1.1377853]
X = [0.4811231, -1.5444767, 0.8724774]


def test_steps_are_those_of_the_package_of_the_authors() -> None:
    y = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    x = y.detach().clone()
    groups = [{"params": [y], "weight_decay": 0.1}]
    optimizer = ScheduleFreeAdamW(
        groups, averages={y: x}, lr=0.1, betas=(0.9, 0.95), eps=1e-8, warmup=3
    )
    schedule = Optimizer(lr=0.1, warmup_steps=3)
    for step in range(1, 9):
        slope, offset = torch.tensor([0.5, 2.0, -1.0]), torch.tensor([1.0, 0.3, 0.2])
        y.grad = (slope * y + offset * step**0.5).detach()
        rate = schedule.rate(step=step, steps=8)
        optimizer.param_groups[0].update(lr=rate, step=step)
        optimizer.step()
    for found, expected in ((y, Y), (optimizer.state[y]["z"], Z), (x, X)):
        assert (found - torch.tensor(expected)).abs().max() < 1e-6


def test_the_validated_weights_are_the_exported_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path))
    keys = [*TINY, *KEYS, "validation.every=8", "validation.images=16", "log.every=1"]
    free = trained(tmp_path, [*keys, "train.steps=8", "optimizer.warmup_steps=1"])
    export(free, tmp_path / "x.safetensors", which="ema")
    # A rate that float32 rounds to 0: the only step moves nothing.
    start = ["optimizer.kind=adamw", "optimizer.lr=1e-50", "train.steps=1"]
    plain = trained(tmp_path, [*keys, *start, f"model.init_from={tmp_path / 'x.safetensors'}"])
    (found,), (expected,) = (
        [one for one in run.records() if "validation_loss" in one] for run in (free, plain)
    )
    assert found["validation_loss"] == expected["validation_loss"]
    assert "validation_loss_ema" not in found


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("train.ema_decay=0.9", "train.ema_decay and ema_snapshots to null"),
        ("optimizer.decay=0.1", "optimizer.decay to 0"),
        ("train.precision=fp16", "cannot skip a step"),
    ],
)
def test_another_average_a_decay_and_fp16_are_refused(key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(DIGITS, [*KEYS, key])
