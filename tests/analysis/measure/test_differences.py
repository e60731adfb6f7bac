"""Differences between two runs, and those that can have changed clock or loss."""

from analysis.measure.differences import causes, differences
from tests.analysis.foreign_logs import log_of


def test_what_an_engine_does_otherwise_is_listed_and_can_have_changed_clock_and_loss():
    ours = log_of({"elapsed_s": range(9)}, facts={"engine": "embedded"})
    unlike = {"sample.width": "samples are 64 x 64 px"}
    theirs = log_of({"elapsed_s": range(9)}, facts={"engine": "aitoolkit", "unlike_native": unlike})
    found = differences(ours, theirs)
    assert "unlike_native.sample.width: null -> samples are 64 x 64 px" in map(str, found)
    for of in ("clock", "loss"):
        assert "unlike_native.sample.width" in [each.name for each in causes(found, of=of)]
