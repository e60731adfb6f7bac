"""`make study` says what it takes before it does anything."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.real_runs import clean_environment


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "usage: make study NAME=NAME"),
        ("nonsense", "nonsense: no such study"),
        ("b", "is for a cluster, and no Slurm answers here; try: make study NAME=b-small"),
    ],
)
def test_what_cannot_be_carried_out_here_is_said_at_once(
    name: str, message: str, tmp_path: Path
) -> None:
    # A Slurm that happens to run here is another test's.
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    done = subprocess.run(
        ["bash", "jobs/study.sh", name],
        env=clean_environment(
            LOGS=str(tmp_path / "logs"), PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        ),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "logs").exists()
