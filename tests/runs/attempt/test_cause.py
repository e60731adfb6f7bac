"""The reason of an attempt whose ranks left no event: their note, Slurm's messages, the output."""

import json
from pathlib import Path

import pytest

from runs.attempt.close import close_attempt
from runs.state.fold import run_state
from runs.state.run_state import RunState
from tests.runs.conftest import begin

# By the accounting of Slurm 22.05, and by a cgroup.
KILLED_FOR_MEMORY = (
    "slurmstepd-a40-1: error: StepId=7.0 exceeded memory limit (1446498304 > 262144000), being "
    "killed",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been "
    "OOM Killed.",
)


def closed(
    config: Path, output: str, note: dict[str, object] | str | None = None, *, status: int = 1
) -> RunState:
    """Return the state of a run whose only attempt left this output, note and status."""
    run = begin(config)
    (run.attempt(1) / "output.log").write_text(output)
    if note:
        text = note if isinstance(note, str) else json.dumps(note)
        (run.attempt(1) / "error.json").write_text(text)
    close_attempt(run.attempt(1), status=status)
    return run_state(run)


@pytest.mark.parametrize("line", KILLED_FOR_MEMORY)
@pytest.mark.parametrize("note", [None, {"reason": "nccl", "message": "peer lost", "rank": 1}])
def test_ranks_killed_for_memory_fail_with_host_oom_even_if_their_peers_noted_nccl(
    config: Path, line: str, note: dict[str, object] | None
) -> None:
    found = closed(config, f"step 60\n{line}\nsrun: task 0: Killed\n", note, status=137)
    assert (found.reason, found.message) == ("host_oom", line)
    assert "rank" not in found.last


def test_the_note_of_a_rank_takes_precedence_over_a_later_kill(config: Path) -> None:
    note = {"reason": "nan", "message": "loss is nan", "rank": 2, "node": "n1"}
    found = closed(config, KILLED_FOR_MEMORY[0], note)
    assert {name: found.last[name] for name in note} == note


def test_without_a_note_the_output_is_searched_for_the_root(config: Path) -> None:
    found = closed(config, "torch.OutOfMemoryError: CUDA out of memory.\nNCCL error in: x\n")
    assert (found.reason, found.next) == ("oom", "change")
    assert "CUDA out of memory" in found.message


@pytest.mark.parametrize(
    ("status", "reason"), [(1, "crash"), (134, "crash"), (137, "killed"), (139, "killed")]
)
def test_without_any_message_the_status_tells_a_signal_from_a_crash(
    config: Path, status: int, reason: str
) -> None:
    found = closed(config, "step 60\n", status=status)
    assert (found.reason, "rank" in found.last) == (reason, False)
    assert f"status {status}" in found.message


def test_a_truncated_note_is_ignored(config: Path) -> None:
    assert closed(config, "", '{"reason": "da').reason == "crash"
