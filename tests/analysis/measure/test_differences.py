"""Differences between two runs, and those that can have changed clock or loss."""

from dataclasses import replace

from analysis.measure.differences import causes, differences
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


def test_a_key_that_there_is_no_more_can_have_changed_clock_and_loss():
    a, b = (
        replace(log_of({"elapsed_s": range(9)}), config={"kind": "pretrain", **keys})
        for keys in ({"model.value_residual": False}, {"model.value_residual": True})
    )
    for of in ("clock", "loss"):
        assert [each.name for each in causes(differences(a, b), of=of)] == ["model.value_residual"]
