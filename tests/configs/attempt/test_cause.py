"""What an attempt whose ranks said nothing ended of, by the words of others."""

import json
from pathlib import Path

import pytest

from configs.attempt.close import cause

# As Slurm 22.05 says it by its own count, and as cgroups have it said.
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
def test_ranks_that_were_killed_for_memory_failed_of_it_whatever_their_peers_noted(
    tmp_path: Path, line: str, note: dict[str, object] | None
) -> None:
    told = cause(
        attempt_with(tmp_path, f"step 60\n{line}\nsrun: task 0: Killed\n", note), status=137
    )
    assert (told["reason"], told["message"]) == ("host_oom", line)
    assert "rank" not in told


def test_the_note_of_a_rank_comes_before_what_killed_it_later(tmp_path: Path) -> None:
    note = {"reason": "nan", "message": "loss is nan", "rank": 2, "node": "n1"}
    told = cause(attempt_with(tmp_path, KILLED_FOR_MEMORY[0], note), status=1)
    assert told == note


def test_without_any_word_it_is_a_crash_with_its_status(tmp_path: Path) -> None:
    told = cause(attempt_with(tmp_path, "step 60\n"), status=139)
    assert (told["reason"], told["rank"]) == ("crash", None)
    assert "status 139" in told["message"]
    assert cause(tmp_path / "nowhere", status=1)["reason"] == "crash"


def test_a_note_that_was_cut_short_is_none(tmp_path: Path) -> None:
    attempt = attempt_with(tmp_path, "")
    (attempt / "error.json").write_text('{"reason": "da')
    assert cause(attempt, status=1)["reason"] == "crash"
