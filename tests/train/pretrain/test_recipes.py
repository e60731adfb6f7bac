"""Losses with the recipes of docs/recipes.md do not depend on the layout or on a resume."""

from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import losses, resumed, trained
from tests.train.pretrain.test_ranks import SMALL, largest_difference

# One worker, so that the reference run is made once.
pytestmark = pytest.mark.xdist_group("ranks")

RECIPES = [
    *SMALL, "train.steps=16", "checkpoint.every=10", "checkpoint.keep=3",
    "model.conditioning=adaln_single",
    "model.registers=2", "model.depth=3",
    "model.routing.kind=tread", "model.routing.before=1", "model.routing.after=1",
]  # fmt: skip
LAYOUTS = {
    "DDP on 2, 2 microbatches": ["train.micro_batch=16"],
    "FSDP2 on 2": ["layout.shard=2"],
    "TP on 2, blocks recomputed": ["layout.tensor=2", "activation_checkpointing.mode=full"],
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGS", str(folder))
        yield folder


@pytest.fixture(scope="module")
def one_rank(logs: Path) -> RunFolder:
    return trained(logs, RECIPES)


@pytest.fixture(scope="module", params=LAYOUTS)
def two_ranks(request: pytest.FixtureRequest, logs: Path) -> RunFolder:
    return trained(logs, [*RECIPES, *LAYOUTS[request.param]], ranks=2)


def test_every_layout_has_the_losses_of_one_rank(one_rank: RunFolder, two_ranks: RunFolder) -> None:
    assert largest_difference(one_rank, two_ranks, steps=16) < 1e-6


def test_a_resume_continues_bit_for_bit(logs: Path, two_ranks: RunFolder) -> None:
    again = losses(resumed(two_ranks, step=10, ranks=2, logs=logs))
    assert again == {step: loss for step, loss in losses(two_ranks).items() if step > 10}
