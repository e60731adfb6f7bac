"""A run begins from the whole state of another, and decays from there."""

import pytest

from configs.errors import ConfigError
from configs.load import load
from runs.checks.paths import check_paths
from runs.folder import RunFolder
from tests.real_runs import DIGITS, TINY, losses, trained

KEYS = [
    *TINY, "log.every=1", "optimizer.warmup_steps=2", "checkpoint.every=4", "checkpoint.keep=9",
    "validation.every=8", "validation.images=4",
]  # fmt: skip
DECAY = ["train.steps=8", "optimizer.decay=0.5", "optimizer.decay_shape=sqrt"]


@pytest.fixture(scope="module")
def trunk() -> RunFolder:
    return trained([*KEYS, "train.steps=12", "optimizer.decay=0.0"])


def test_a_branch_equals_an_uninterrupted_run_of_its_schedule_to_the_bit(trunk: RunFolder) -> None:
    checkpoint = trunk.checkpoints / "step-000000004"
    branch = trained([*KEYS, *DECAY, f"train.branch_from={checkpoint}"])
    whole = trained([*KEYS, *DECAY])
    assert losses(branch) == {step: loss for step, loss in losses(whole).items() if step > 4}
    last, expected = (
        next(one for one in run.records() if "validation_loss_ema" in one)
        for run in (branch, whole)
    )
    for name in ("step", "images", "validation_loss", "validation_loss_ema"):
        assert last[name] == expected[name]
    lineage = branch.manifest()["attempts"][0]["branched_from"]  # type: ignore[typeddict-item]
    assert lineage["checkpoint"] == str(checkpoint)
    assert len(lineage["sha256"]) == 64


@pytest.mark.parametrize(
    ("step", "keys", "message"),
    [
        (4, ["model.depth=2"], "another network"),
        (4, ["train.ema_decay=null"], "only one has an EMA"),
        (4, ["optimizer.kind=muon"], "another network or optimizer.kind"),
        (8, [], "ends there"),
        (7, [], "no such folder"),
    ],
)
def test_a_branch_that_cannot_begin_is_refused_before_it_is_queued(
    trunk: RunFolder, step: int, keys: list[str], message: str
) -> None:
    checkpoint = trunk.checkpoints / f"step-{step:09d}"
    config = load(DIGITS, [*KEYS, *DECAY, *keys, f"train.branch_from={checkpoint}"])
    with pytest.raises(ConfigError, match=message):
        check_paths(config)


def test_a_folder_that_is_no_checkpoint_is_refused(trunk: RunFolder) -> None:
    config = load(DIGITS, [f"train.branch_from={trunk.path}"])
    with pytest.raises(ConfigError, match="not a checkpoint of a run"):
        check_paths(config)
