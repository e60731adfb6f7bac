"""Differences between two runs, and those that can have changed clock or loss."""

from dataclasses import replace

import pytest

from analysis.measure.differences import causes, differences
from analysis.measure.loss_curve import why_unlike
from analysis.observations import attributed, is_repeat, seed_of
from tests.analysis.foreign_logs import log_of


def test_the_engine_can_have_changed_clock_and_loss():
    ours, theirs = (
        log_of({"elapsed_s": range(9)}, facts={"engine": name})
        for name in ("embedded", "aitoolkit")
    )
    found = differences(ours, theirs)
    assert "engine: embedded -> aitoolkit" in map(str, found)
    for of in ("clock", "loss"):
        assert "engine" in [each.name for each in causes(found, of=of)]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ({"kind": "pretrain"}, "model.value_residual"),  # which there is no more
        ({"kind": "pretrain"}, "my_lr_scale"),
        ({}, "lr"),  # of another trainer
    ],
)
def test_a_key_that_the_schema_lacks_can_have_changed_clock_and_loss(kind, key):
    a, b = (
        replace(log_of({"elapsed_s": range(9)}), config={**kind, key: value}) for value in (1, 2)
    )
    for of in ("clock", "loss"):
        assert [each.name for each in causes(differences(a, b), of=of)] == [key]


@pytest.mark.parametrize("name", ["commit", "versions", "images_in_set"])
def test_code_versions_and_images_can_have_changed_the_loss(name):
    values = {"commit": "ab", "versions": {"torch": "2"}, "images_in_set": 100}
    a, b = (
        replace(log_of({"elapsed_s": range(9)}, facts=facts), config={"kind": "pretrain"})
        for facts in (values, values | {name: {"torch": "3"} if name == "versions" else "7"})
    )
    assert len(causes(differences(a, b), of="loss")) == 1
    assert (why_unlike(a, b, "loss") is not None) == (name == "images_in_set")


def test_seeds_and_names_of_runs_of_other_trainers_are_no_part_of_a_recipe():
    """As Hugging Face's Trainer writes them."""
    a, b, other, named = (
        replace(
            log_of({"elapsed_s": range(9)}, name=name),
            config={
                "lr": lr,
                "random_seed": seed,
                "data_seed": seed,
                "output_dir": f"out/{seed}",
                "run_name": f"base-s{seed}" if name != "d" else "other-s4",
                "start_time": f"2026-01-0{seed}",
            },
        )
        for name, seed, lr in (("a", 1, 1e-3), ("b", 2, 1e-3), ("c", 3, 2e-3), ("d", 4, 1e-3))
    )
    assert is_repeat(a, b)
    assert not is_repeat(a, other)
    assert "run_name" in attributed([a], [named], of="loss")
    assert not is_repeat(a, named)
    assert seed_of(a) == (1, 1)
    assert attributed([a], [other], of="loss") == "the effect of lr: 0.001 -> 0.002"
