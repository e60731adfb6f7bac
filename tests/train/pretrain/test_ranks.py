"""The losses of a run do not depend on its number of ranks or microbatches."""

import pytest
import torch

from configs.errors import ConfigError
from configs.load import load
from runs.folder import RunFolder
from tests.real_runs import DIGITS, losses, resumed, trained
from train.engine.checkpoint import load_weights
from train.engine.distributed import process_group, read_ranks
from train.model.build import build_network

# One worker, so that the reference runs are made once.
pytestmark = pytest.mark.xdist_group("ranks")

# With samples and validations, since they swap the weights.
EVERY_STEP = [
    "log.every=1", "log.tensorboard=false", "sample.per_class=1", "sample.steps=1",
    "sample.every=8", "validation.every=12", "validation.images=8",
    # Without decay the losses do not depend on the number of steps.
    "optimizer.decay=0.0",
]  # fmt: skip
# A smaller network than the config's, which the long tests use; the layouts are the same.
SMALL = ["model.width=64", "model.depth=2", *EVERY_STEP]
KEYS = {24: SMALL, 200: EVERY_STEP}


@pytest.fixture(scope="module")
def one_rank() -> RunFolder:
    """200 steps of the small network."""
    return trained(["train.steps=200", *SMALL])


@pytest.fixture(scope="module")
def long_one_rank() -> RunFolder:
    """200 steps of the network of the config."""
    return trained(["train.steps=200", *EVERY_STEP])


def largest_difference(a: RunFolder, b: RunFolder, *, steps: int) -> float:
    first, second = losses(a), losses(b)
    assert list(second) == list(range(1, steps + 1))
    return max(abs(first[step] - second[step]) / first[step] for step in second)


TP_FSDP = "TP x FSDP2 on 2 x 2, 2 microbatches"
LAYOUTS = {
    "4 microbatches": (1, ["train.micro_batch=16"]),
    "2 ranks": (2, []),
    "FSDP2 on 2": (2, ["layout.shard=2"]),
    "TP on 2": (2, ["layout.tensor=2"]),
    "FSDP2 on 2, blocks recomputed": (2, ["layout.shard=2", "activation_checkpointing.mode=full"]),
    "FSDP2 on 2, saves while training": (
        2, ["layout.shard=2", "checkpoint.asynchronous=true", "checkpoint.every=7"],
    ),
    "4 ranks, 2 microbatches": (4, ["train.micro_batch=8"]),
    "HSDP on 2 x 2": (4, ["layout.shard=2"]),
    TP_FSDP: (4, ["layout.tensor=2", "layout.shard=2", "train.micro_batch=16"]),
}  # fmt: skip
# Layouts whose parts are also covered by others.
SELDOM = (
    "4 microbatches", "4 ranks, 2 microbatches", "all but products recomputed",
    "FSDP2 on 2, saves while training", "HSDP on 2 x 2", TP_FSDP,
)  # fmt: skip


RECIPES = {
    "muon": ["optimizer.kind=muon"],
}
# A rate at which matrices behind gates, which begin at 0, change the losses within eight steps:
# those of Muon and AdamW are 4e-3 apart.
FAST = ["optimizer.lr=1e-3", "optimizer.warmup_steps=2"]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    "layout", [pytest.param([], marks=pytest.mark.long), ["layout.shard=2"]], ids=["DDP", "FSDP2"]
)
def test_a_recipe_has_the_losses_of_one_rank_in_microbatches_and_resumes_to_the_bit(
    recipe: str, layout: list[str]
) -> None:
    keys = ["train.steps=8", "checkpoint.every=4", *SMALL, *FAST, "sample.every=4"]
    keys += RECIPES[recipe]
    alone = trained([*keys, "train.micro_batch=16"])
    two = trained([*keys, *layout], ranks=2)
    assert largest_difference(alone, two, steps=8) < 1e-6
    again = losses(resumed(two, step=4, ranks=2))
    assert again == {step: loss for step, loss in losses(two).items() if step > 4}


def test_two_identical_runs_have_the_same_losses_to_the_bit(one_rank: RunFolder) -> None:
    again, whole = losses(trained(["train.steps=24", *SMALL])), losses(one_rank)
    assert again == {step: whole[step] for step in range(1, 25)}


@pytest.mark.parametrize(
    ("steps", "reference"),
    [(24, "one_rank"), pytest.param(200, "long_one_rank", marks=pytest.mark.long)],
    ids=["24 steps", "200 steps"],
)
@pytest.mark.parametrize(
    "layout",
    [pytest.param(one, marks=pytest.mark.long if one in SELDOM else ()) for one in LAYOUTS],
)
def test_in_fp32_every_layout_has_the_losses_of_one_rank(
    request: pytest.FixtureRequest, layout: str, steps: int, reference: str
) -> None:
    ranks, more = LAYOUTS[layout]
    other = trained([f"train.steps={steps}", *KEYS[steps], *more], ranks=ranks)
    assert largest_difference(request.getfixturevalue(reference), other, steps=steps) < 1e-6


@pytest.mark.parametrize("layout", ["FSDP2 on 2", "HSDP on 2 x 2", TP_FSDP])
def test_every_layout_starts_from_the_same_weights_to_the_bit(layout: str) -> None:
    ranks, more = LAYOUTS[layout]
    # A rate that float32 rounds to 0: the only step moves nothing.
    run = trained(["train.steps=1", *SMALL, "optimizer.lr=1e-50", *more], ranks=ranks)
    network = build_network(run.config())
    expected = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    with process_group(read_ranks()):
        load_weights(run.checkpoints, network, which="model")
    found = network.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_blocks_that_stay_gathered_change_no_bit_and_a_reduction_in_bf16_only_rounding() -> None:
    keys = ["train.steps=6", "train.micro_batch=16", "layout.shard=2", *SMALL]
    arms = ([], ["layout.reshard=false"], ["train.reduce=bf16"])
    runs = [trained([*keys, *more], ranks=2) for more in arms]
    plain, gathered, rounded = map(losses, runs)
    assert gathered == plain
    assert rounded[1] == plain[1]
    assert 0 < abs(rounded[6] - plain[6]) / plain[6] < 1e-3
    dtypes = runs[2].manifest()["attempts"][0]["dtypes"]
    assert (dtypes["reduction"], dtypes["gradients"]) == ("bfloat16", "float32")


def test_ddp_sums_gradients_in_bf16_if_asked_to() -> None:
    keys = ["train.steps=6", "train.micro_batch=16", *SMALL]
    runs = [trained([*keys, *more], ranks=2) for more in ([], ["train.reduce=bf16"])]
    plain, rounded = map(losses, runs)
    assert rounded[1] == plain[1]
    assert 0 < abs(rounded[6] - plain[6]) / plain[6] < 1e-3
    assert runs[1].manifest()["attempts"][0]["dtypes"]["reduction"] == "bfloat16"


def test_a_reduction_in_bf16_is_refused_where_gradients_are_measured() -> None:
    with pytest.raises(ConfigError, match=r"set train\.reduce to fp32"):
        load(DIGITS, ["train.reduce=bf16", "gns.enabled=true"])


@pytest.fixture(
    scope="module",
    params=[
        ["checkpoint.asynchronous=true"],
        ["layout.shard=2"],
        pytest.param(["layout.tensor=2", "checkpoint.asynchronous=true"], marks=pytest.mark.long),
    ],
    ids=["DDP, saved while training", "FSDP2", "TP, saved while training"],
)
def two_ranks(request: pytest.FixtureRequest) -> RunFolder:
    keys = ["train.steps=24", "checkpoint.every=10", "checkpoint.keep=3"]
    return trained([*keys, *SMALL, *request.param], ranks=2)


def test_a_resume_on_the_same_number_of_ranks_continues_bit_for_bit(two_ranks: RunFolder) -> None:
    again = resumed(two_ranks, step=10, ranks=2)
    expected = {step: loss for step, loss in losses(two_ranks).items() if step > 10}
    assert losses(again) == expected
    # Clocks and images continue.
    at_10 = next(record for record in two_ranks.records() if record.get("step") == 10)
    later = [record for record in again.records() if "train_s" in record]
    assert all(record["train_s"] > at_10["train_s"] for record in later)
    assert all(record["images"] == record["step"] * 64 for record in later)


def test_a_resume_on_another_number_of_ranks_continues_within_rounding(
    two_ranks: RunFolder,
) -> None:
    layout = two_ranks.config().layout
    ranks = 4 if layout.shard * layout.tensor == 2 else 1
    again, whole = losses(resumed(two_ranks, step=20, ranks=ranks)), losses(two_ranks)
    assert list(again) == list(range(21, 25))
    assert max(abs(again[step] - whole[step]) / whole[step] for step in again) < 1e-6


def test_a_run_starts_from_the_ema_weights_of_another(one_rank: RunFolder) -> None:
    keys = ["train.steps=5", *SMALL, f"model.init_from={one_rank.path}", "layout.shard=2"]
    begun, ended = losses(trained(keys, ranks=2)), losses(one_rank)
    assert max(begun.values()) < (ended[1] + ended[200]) / 2
