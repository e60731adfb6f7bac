"""Schedules and adapters: each resumes exactly, and does what its key says."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import FluxTransformer2DModel
from PIL import Image
from safetensors.torch import load_file

from configs.schema.finetune import Lora
from configs.schema.training import LearningRate
from finetune.native.lora import add_learned
from runs.folder import RunFolder
from tests.finetune.conftest import TrainLora, run_attempt
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


def test_a_schedule_resumes_to_the_bit_and_the_file_gives_the_images_of_training(
    train_lora: TrainLora, plain: RunFolder, tmp_path: Path
) -> None:
    keys = ["decay=1.0", "decay_shape=cosine", "warmup_steps=3"]
    whole = train_lora(*SHORT, *(f"optimizer.{key}" for key in keys))
    copy = train_lora(resumes=killed_after_4(whole, tmp_path))
    assert losses(copy) == losses(whole)
    assert equal(lora(copy), lora(whole))
    assert not equal(lora(whole), lora(plain))
    images = [Image.open(run.prompt_sample(0, step)).tobytes() for run, step in
              ((whole, 0), (whole, 8), (plain, 0), (plain, 8))]  # fmt: skip
    assert images[0] == images[2], "an update changes nothing before training"
    assert images[1] not in (images[0], images[3])
    drawn = run_attempt(whole.path, ["warmup=0"], kind="infer")
    found = Image.open(drawn.samples / "prompt-00" / "image-0000.png")
    exact = np.array(Image.open(whole.prompt_sample(0, 8)), dtype=int)
    assert np.abs(np.array(found, dtype=int) - exact).max() <= 1


def test_the_rate_of_each_step_is_recorded(train_lora: TrainLora) -> None:
    run = train_lora(*SHORT, "optimizer.lr=0.01", "optimizer.decay=0.5", "optimizer.warmup_steps=2")
    schedule = LearningRate(lr=0.01, decay=0.5, warmup_steps=2)
    found = {r["step"]: r["lr"] for r in run.records() if "lr" in r}
    assert found == {n: schedule.rate(step=n, steps=8) for n in range(1, 9)}


@pytest.mark.parametrize(
    ("targets", "count"),
    [("attention", 11), ("attention+mlp", 17), ("blocks", 20), ("all", 28)],
)
def test_targets_choose_the_layers(targets: str, count: int, flux: Path) -> None:
    """The tiny Flux has one block of each kind, as each of the 19 and 38 of a real one."""
    transformer = FluxTransformer2DModel.from_pretrained(flux / "model" / "transformer")
    weights = add_learned(transformer, Lora(targets=targets, rank=4), seed=0)
    assert sum(".lora_A." in name for name in weights.file_tensors()) == count
