"""Losses with the recipes of docs/recipes.md do not depend on the layout or on a resume."""

from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import losses, resumed, trained
from tests.train.latent_stores import encode_alone, encoding
from tests.train.pretrain.test_ranks import SMALL, largest_difference
from tests.train.tiny_vae import save_dino

# One worker, so that the reference runs are made once.
pytestmark = pytest.mark.xdist_group("ranks")

STEPS = 16
KEEP = [*SMALL, f"train.steps={STEPS}", "checkpoint.every=6", "checkpoint.keep=3"]
RECIPES = {
    "predicted image": ["objective.prediction=x"],
    "routing": [
        "model.conditioning=adaln_single", "model.registers=2", "model.depth=3",
        "model.routing.kind=tread", "model.routing.before=1", "model.routing.after=1",
    ],
}  # fmt: skip
LAYOUTS = {
    "DDP on 2, 2 microbatches": ["train.micro_batch=16"],
    "FSDP2 on 2": ["layout.shard=2"],
    "TP on 2, blocks recomputed": ["layout.tensor=2", "activation_checkpointing.mode=full"],
}


@pytest.fixture(scope="module", params=RECIPES)
def one_rank(request: pytest.FixtureRequest) -> tuple[list[str], RunFolder]:
    """The keys of a recipe, and its run on one rank."""
    keys = [*KEEP, *RECIPES[request.param]]
    return keys, trained(keys)


def expect_alike_and_resumable(one: RunFolder, run: RunFolder) -> None:
    """Check that a run on two ranks has the losses of one rank, also after a resume."""
    assert largest_difference(one, run, steps=STEPS) < 1e-6
    again = losses(resumed(run, step=6, ranks=2))
    assert again == {step: loss for step, loss in losses(run).items() if step > 6}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_recipe_has_the_same_losses_on_two_ranks_and_after_a_resume(
    one_rank: tuple[list[str], RunFolder], layout: str
) -> None:
    keys, one = one_rank
    expect_alike_and_resumable(one, trained([*keys, *LAYOUTS[layout]], ranks=2))


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory, stored: Path) -> list[str]:
    """Keys of a run on latents with features."""
    folder = tmp_path_factory.mktemp("features")
    save_dino(folder / "dino")
    keys = {"images": str(stored / "images"), "vae": str(stored / "vae"), "feature_grid": 4}
    encode_alone(encoding(folder, features=str(folder / "dino"), **keys))
    return [
        *KEEP, "data.source=latents", f"data.path={folder / 'store'}", "data.channels=4",
        "data.classes=3", "data.held_out=0", "validation.every=null", "train.global_batch=8",
        "train.ema_decay=0.9", "repa.weight=0.5", "repa.block=1", "repa.hidden=16",
        "repa.features=8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "layout", [["train.micro_batch=2"], ["layout.shard=2", "train.micro_batch=4"]], ids=str
)
def test_alignment_has_the_same_losses_on_two_ranks_and_after_a_resume(
    aligned: list[str], layout: list[str]
) -> None:
    run, one = trained([*aligned, *layout], ranks=2), trained(aligned)
    expect_alike_and_resumable(one, run)
    plain = losses(trained([*aligned, "repa.weight=0"]))
    assert abs(losses(run)[1] - plain[1]) > 0.01
