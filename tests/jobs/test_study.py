"""`make study` refuses a study that cannot run here before it does anything."""

import os
from pathlib import Path

import pytest

from tests.real_runs import clean_environment, finished


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "usage: make study NAME=NAME"),
        ("nonsense", "nonsense: no such study"),
        ("b", "is for a cluster, and no Slurm answers here; try: make study NAME=b-small"),
    ],
)
def test_a_study_that_cannot_run_here_is_refused_at_once(
    name: str, message: str, tmp_path: Path
) -> None:
    # Ignore a Slurm that another test runs on this machine.
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = clean_environment(LOGS=str(tmp_path / "logs"), PATH=path)
    done = finished("bash", "jobs/study.sh", name, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "logs").exists()
