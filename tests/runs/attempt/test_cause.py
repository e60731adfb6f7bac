"""The cause of an attempt whose ranks left no event: their note, or Slurm's messages."""

import json
from pathlib import Path

import pytest

from runs.attempt.close import cause

# By the accounting of Slurm 22.05, and by a cgroup.
KILLED_FOR_MEMORY = (
    "slurmstepd-a40-1: error: StepId=7.0 exceeded memory limit (1446498304 > 262144000), being "
    "killed",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been "
    "OOM Killed.",
)


def attempt_with(folder: Path, output: str, note: dict[str, object] | None = None) -> Path:
    (folder / "output.log").write_text(output)
    if note:
        (folder / "error.json").write_text(json.dumps(note))
    return folder


@pytest.mark.parametrize("line", KILLED_FOR_MEMORY)
@pytest.mark.parametrize("note", [None, {"reason": "nccl", "message": "peer lost", "rank": 1}])
def test_ranks_killed_for_memory_fail_with_host_oom_even_if_their_peers_noted_nccl(
    tmp_path: Path, line: str, note: dict[str, object] | None
) -> None:
    found = cause(
        attempt_with(tmp_path, f"step 60\n{line}\nsrun: task 0: Killed\n", note), status=137
    )
    assert (found["reason"], found["message"]) == ("host_oom", line)
    assert "rank" not in found


def test_the_note_of_a_rank_takes_precedence_over_a_later_kill(tmp_path: Path) -> None:
    note = {"reason": "nan", "message": "loss is nan", "rank": 2, "node": "n1"}
    found = cause(attempt_with(tmp_path, KILLED_FOR_MEMORY[0], note), status=1)
    assert found == note


def test_without_any_message_it_is_a_crash_with_its_status(tmp_path: Path) -> None:
    found = cause(attempt_with(tmp_path, "step 60\n"), status=139)
    assert (found["reason"], found["rank"]) == ("crash", None)
    assert "status 139" in found["message"]
    assert cause(tmp_path / "nowhere", status=1)["reason"] == "crash"


def test_a_truncated_note_is_ignored(tmp_path: Path) -> None:
    attempt = attempt_with(tmp_path, "")
    (attempt / "error.json").write_text('{"reason": "da')
    assert cause(attempt, status=1)["reason"] == "crash"
