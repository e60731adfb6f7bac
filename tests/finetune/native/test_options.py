"""Optimizers, schedules and adapters: each resumes exactly, and does what its key says."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from configs.run.folder import RunFolder
from configs.schema.training import LearningRate
from tests.finetune.conftest import TrainLora
from tests.real_runs import losses

pytestmark = pytest.mark.xdist_group("flux")
SHORT = ("train.steps=8", "checkpoint.every=4", "sample.every=null", "validation.every=null")


def lora(run: RunFolder, step: int = 8) -> dict[str, torch.Tensor]:
    return load_file(run.lora / f"step-{step:09d}.safetensors")


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one | other)


def killed_after_4(run: RunFolder, folder: Path) -> RunFolder:
    """Return a copy of a run of eight steps as it was after the checkpoint of step 4."""
    copy = RunFolder(Path(shutil.copytree(run.path, folder / run.name)))
    lines = copy.metrics_file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not any(f'"step": {n},' in line for n in (5, 6, 7, 8))]
    copy.metrics_file.write_text("".join(kept))
    shutil.rmtree(copy.checkpoints / "step-000000008")
    for file in (*copy.lora.rglob("step-000000008*"), *copy.samples.rglob("step-000000008*")):
        file.unlink()
    return copy


@pytest.fixture(scope="module")
def plain(train_lora: TrainLora) -> RunFolder:
    """Return a run of eight steps with every option at its default."""
    return train_lora(*SHORT)


@pytest.mark.parametrize(
    "keys",
    [
        ["decay=1.0", "decay_shape=cosine", "warmup_steps=3", "restarts=1"],
        ["kind=prodigy", "lr=1.0", "warmup_steps=2", "decay=0.5"],
        ["kind=schedule_free", "warmup_steps=2"],
    ],
    ids=["cosine with restarts", "prodigy", "schedule-free"],
)
def test_an_optimizer_with_a_schedule_resumes_to_the_bit(
    keys: list[str], train_lora: TrainLora, plain: RunFolder, tmp_path: Path
) -> None:
    changes = [f"optimizer.{key}" for key in keys]
    if "kind=schedule_free" in keys:
        changes.append("train.ema_decay=null")
    whole = train_lora(*SHORT, *changes)
    copy = train_lora(resumes=killed_after_4(whole, tmp_path))
    assert losses(copy) == losses(whole)
    assert equal(lora(copy), lora(whole))
    assert not equal(lora(whole), lora(plain))


def test_the_rate_of_each_step_is_recorded(train_lora: TrainLora) -> None:
    run = train_lora(*SHORT, "optimizer.lr=0.01", "optimizer.decay=0.5", "optimizer.warmup_steps=2")
    schedule = LearningRate(lr=0.01, decay=0.5, warmup_steps=2)
    found = {r["step"]: r["lr"] for r in run.records() if "lr" in r}
    assert found == {n: schedule.rate(step=n, steps=8) for n in range(1, 9)}


def test_prodigy_records_the_rate_that_it_estimates(train_lora: TrainLora) -> None:
    run = train_lora(*SHORT, "optimizer.kind=prodigy", "optimizer.lr=1.0", "train.steps=24")
    found = [r["lr"] for r in run.records() if "lr" in r]
    assert found[0] < 1e-5
    assert found == sorted(found)
    assert found[-1] > 2 * found[0]
