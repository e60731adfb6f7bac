"""Differences between two runs, and those that can have changed clock or loss."""

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
