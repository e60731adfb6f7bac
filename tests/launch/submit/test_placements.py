"""The placements of a run: the layout that fits on each, or the reason for which none does."""

from launch.plan.placements import placements
from launch.submit.run import run_request
from tests.launch.conftest import DIGITS


def test_the_micro_batch_and_the_sharding_follow_the_memory(site) -> None:
    words = ["model.width=2048", "model.heads=16", "model.depth=32", "train.global_batch=4096"]
    request = run_request(DIGITS, words, site_name=None, extra={})
    small, large = placements(request, ["a40:2x4", "h100:1x4"], site_name=None)
    assert {"train.micro_batch=256", "layout.shard=8", "resources.nodes=2"} < {*small.overrides}
    assert any(word.startswith("train.micro_batch=") for word in large.overrides)
    assert not any(word.startswith("layout.shard") for word in large.overrides)
    assert small.request.config.resources.gpu == "a40"
    assert small.request.config.train.global_batch == 4096


def test_a_placement_that_cannot_train_the_run_says_why(site) -> None:
    request = run_request(DIGITS, [], site_name=None, extra={})
    (place,) = placements(request, ["a40:1x3"], site_name=None)
    assert place.refusal is not None
    assert place.refusal.startswith("train.global_batch 64 does not divide over 3 data")
    words = ["model.width=65536", "model.heads=64"]
    request = run_request(DIGITS, words, site_name=None, extra={})
    (place,) = placements(request, ["a40:1x1"], site_name=None)
    assert place.refusal is not None
    assert place.refusal.startswith("does not fit: not even one image fits")
