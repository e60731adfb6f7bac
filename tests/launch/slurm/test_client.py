"""What Slurm's commands print is read whatever their bytes are."""

from pathlib import Path

import pytest

from launch.slurm import client


def test_bytes_that_are_no_text_are_replaced(command) -> None:
    command("squeue", r"printf '7|RUNNING|n\xff1|||caf\xe9\n'")
    command("sacct", r"printf '8|FAILED|1:0|Unknown|Unknown|5|None|gpu|n\xff\n'")
    jobs = client.query_jobs(["7", "8"])
    assert jobs["7"].nodes == "n\N{REPLACEMENT CHARACTER}1"
    assert (jobs["7"].state, jobs["8"].state) == ("RUNNING", "FAILED")


def test_types_of_gpu_may_begin_with_a_digit(command) -> None:
    rows = r"x1|gpu:2080ti:6(S:0-1)\nx2|gpu:1g.10gb:7,gpu:a40:1\nx3|gpu:2(S:0)\n"
    command("sinfo", f"printf '{rows}'")
    assert client.gpus() == {"": (1, 2), "1g.10gb": (1, 7), "2080ti": (1, 6), "a40": (1, 1)}


def test_where_slurm_is_not_installed_no_start_of_a_job_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert client.accounted(["8"]) == []
