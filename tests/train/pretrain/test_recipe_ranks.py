"""Runs that predict the image, and runs with REPA, have the same losses in all layouts."""

from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import losses, resumed, trained
from tests.train.latent_stores import encode_alone, encoding
from tests.train.pretrain.test_ranks import SMALL, largest_difference, logs
from tests.train.tiny_vae import save_dino

__all__ = ["logs"]

pytestmark = pytest.mark.xdist_group("ranks")

RECIPES = [*SMALL, "train.steps=24", "checkpoint.every=12", "objective.prediction=x"]


@pytest.fixture(scope="module")
def one_rank(logs: Path) -> RunFolder:
    return trained(logs, RECIPES)


@pytest.mark.parametrize(
    "layout", [["train.micro_batch=8"], ["layout.shard=2", "train.micro_batch=16"]], ids=str
)
def test_the_predicted_image_has_the_same_losses_on_two_ranks_and_after_a_resume(
    logs: Path, one_rank: RunFolder, layout: list[str]
) -> None:
    run = trained(logs, [*RECIPES, *layout], ranks=2)
    assert largest_difference(one_rank, run, steps=24) < 1e-6
    again = losses(resumed(run, step=12, ranks=2, logs=logs))
    assert again == {step: loss for step, loss in losses(run).items() if step > 12}


@pytest.fixture(scope="module")
def aligned(logs: Path, stored: Path) -> list[str]:
    """Keys of a run on latents with features."""
    save_dino(logs / "dino")
    keys = {"images": str(stored / "images"), "vae": str(stored / "vae"), "feature_grid": 4}
    encode_alone(encoding(logs, features=str(logs / "dino"), **keys))
    return [
        *SMALL, "train.steps=16", "checkpoint.every=6", "checkpoint.keep=3", "data.source=latents",
        f"data.path={logs / 'store'}", "data.channels=4", "data.classes=3", "data.held_out=0",
        "validation.every=null", "train.global_batch=8", "train.ema_decay=0.9", "repa.weight=0.5",
        "repa.block=1", "repa.hidden=16", "repa.features=8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "layout", [["train.micro_batch=2"], ["layout.shard=2", "train.micro_batch=4"]], ids=str
)
def test_alignment_has_the_same_losses_on_two_ranks_and_after_a_resume(
    logs: Path, aligned: list[str], layout: list[str]
) -> None:
    run, one_rank = trained(logs, [*aligned, *layout], ranks=2), trained(logs, aligned)
    assert largest_difference(one_rank, run, steps=16) < 1e-6
    again = losses(resumed(run, step=6, ranks=2, logs=logs))
    assert again == {at: loss for at, loss in losses(run).items() if at > 6}
    plain = losses(trained(logs, [*aligned, "repa.weight=0"]))
    assert abs(losses(run)[1] - plain[1]) > 0.01
