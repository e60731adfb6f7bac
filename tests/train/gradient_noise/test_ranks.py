"""Accumulation, DDP, FSDP2 and HSDP measure the same noise, and measuring changes no loss."""

from typing import Any

import pytest

from runs.folder import RunFolder
from tests.real_runs import DIGITS, losses, opened, torchrun
from train.engine.attempt import run_attempt
from train.pretrain.run import carry_out

pytestmark = pytest.mark.xdist_group("ranks")

KEYS = [
    "train.steps=2", "log.every=1", "log.tensorboard=false", "sample.per_class=1",
    "sample.steps=1", "model.width=32", "model.depth=2", "model.heads=2",
]  # fmt: skip
NOISE = ["gns.enabled=true"]
LAYOUTS = {
    "without": [],
    "DDP": NOISE,
    "FSDP2": [*NOISE, "layout.shard=4"],
    "HSDP": [*NOISE, "layout.shard=2"],
}


def opened_run(*keys: str) -> RunFolder:
    return opened(DIGITS, [*KEYS, *keys])


@pytest.fixture(scope="module")
def runs() -> dict[str, RunFolder]:
    """The same two steps on one rank, and on four ranks in every layout."""
    one = opened_run(*NOISE, "train.micro_batch=16")
    others = {name: opened_run(*keys) for name, keys in LAYOUTS.items()}
    assert run_attempt(one, carry_out, number=1) == 0
    for run in others.values():
        torchrun(run, ranks=4)
    return {"one": one, **others}


def noise_fields(run: RunFolder) -> list[dict[str, Any]]:
    return [record["gns"] for record in run.records() if "gns" in record]


@pytest.mark.parametrize("layout", ["DDP", "FSDP2", "HSDP"])
def test_every_layout_measures_the_noise_of_one_rank(
    runs: dict[str, RunFolder], layout: str
) -> None:
    one, other = noise_fields(runs["one"]), noise_fields(runs[layout])
    assert len(one) == len(other) == 2
    for a, b in zip(one, other, strict=True):
        assert (a["k"], a["b"]) == (b["k"], b["b"]) == (4, 16)
        assert b["small"] == pytest.approx(a["small"], rel=1e-5)
        assert b["big"] == pytest.approx(a["big"], rel=1e-5)


def test_measuring_changes_no_bit_of_the_curve(runs: dict[str, RunFolder]) -> None:
    assert losses(runs["DDP"]) == losses(runs["without"])
