"""A profile window writes traces that name the parts of a step; no rate is computed from it."""

import pytest

from analysis.measure.clocks import intervals
from analysis.read.find import read_logs
from runs.folder import RunFolder
from tests.real_runs import TINY, losses, trained

KEYS = [*TINY, "train.steps=30", "log.every=2", "checkpoint.every=100"]


@pytest.fixture(scope="module")
def runs() -> list[RunFolder]:
    """A run with a profile window before step 11, and the same run without."""
    window = ["profile.at=11", "profile.steps=3"]
    return [trained([*KEYS, *more], ranks=2) for more in (window, [])]


def test_every_rank_writes_a_trace_and_a_table_with_the_parts_of_a_step(
    runs: list[RunFolder],
) -> None:
    folder = runs[0].profile / "attempt-001"
    assert sorted(file.name for file in folder.iterdir()) == [
        "rank-00000.json.gz", "rank-00000.txt", "rank-00001.json.gz", "rank-00001.txt",
    ]  # fmt: skip
    lines = (folder / "rank-00000.txt").read_text().splitlines()
    for part in ("data", "copy", "forward", "backward", "optimizer", "ema"):
        (line,) = (line for line in lines if f"region: {part} " in line)
        assert line.split()[-1] == "3"
    assert any("aten::addmm" in line for line in lines)


def test_profiling_changes_no_loss(runs: list[RunFolder]) -> None:
    with_window, without = map(losses, runs)
    assert {step: with_window[step] for step in with_window if step in without} == without | {
        step: with_window[step] for step in (12, 14)
    }


def test_the_profiled_steps_have_a_clock_of_their_own(runs: list[RunFolder]) -> None:
    steps = {r["step"]: r for r in runs[0].records() if "loss" in r}
    # One step warms up before the three.
    assert steps[10]["profile_s"] == 0
    assert steps[14]["profile_s"] > 0
    assert steps[14]["train_s"] == steps[10]["train_s"]
    assert steps[16]["train_s"] > steps[14]["train_s"]
    assert steps[16]["profile_s"] == steps[30]["profile_s"] > steps[14]["profile_s"]


def test_no_rate_is_computed_from_the_profiled_steps(runs: list[RunFolder]) -> None:
    found = intervals(read_logs([str(runs[0].path)])[0], clock="train")
    steps = [record["step"] for record in runs[0].records() if "loss" in record]
    assert len(found.seconds) == len(steps) - 1 - found.left_out
    # The intervals that end at steps 12 and 14, and the next, in which the trace was written.
    assert found.left_out == 3


def test_a_run_that_ends_inside_the_window_releases_its_clocks() -> None:
    run = trained([*KEYS, "train.steps=12", "profile.at=11", "profile.steps=5"])
    last = list(run.records())[-1]
    assert last["event"] == "done"
    assert last["profile_s"] > 0
    assert not list(run.profile.glob("*/*.json.gz"))
