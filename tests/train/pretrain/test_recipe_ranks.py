"""Runs that predict the image have the same losses in all layouts."""

from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import losses, resumed, trained
from tests.train.pretrain.test_ranks import SMALL, largest_difference, logs

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
