"""The steps of a training are one line on a terminal, and thinned where that is asked for."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

OUTPUT = """started  step 0
step   5/500  loss 2.1  lr 0.001  grad_norm 1.2  gpu_gb 1.25  train 1.0 s
step  10/500  loss 2.0  lr 0.001  grad_norm 1.2  gpu_gb 1.25  train 2.0 s
saved  step 10
step  15/500  loss 1.9  lr 0.001  grad_norm 1.2  gpu_gb 1.25  train 3.0 s
done
"""
# As the body of a job follows the output of its ranks; the rank here is a sleep.
FOLLOW = """source jobs/agents.sh; ROOT=$PWD; ATTEMPT=$1; sleep 1.2 & AGENTS=($!)
follow_output; wait $FOLLOWER"""


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    (tmp_path / "output.log").write_text(OUTPUT)
    return tmp_path


def follow(attempt: Path, *, stdout: int, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", FOLLOW, "bash", attempt], env=os.environ | {"TERM": "xterm"} | changes,
        stdout=stdout, check=True, text=True,
    )  # fmt: skip


def test_a_terminal_shows_one_line_with_rate_and_time_to_go(attempt: Path) -> None:
    terminal, inside = pty.openpty()
    with os.fdopen(inside, "wb") as stdout:
        follow(attempt, stdout=stdout.fileno())
    shown = os.read(terminal, 1 << 16).decode().replace("\r\n", "\n").split("\n")
    os.close(terminal)
    assert [line.split("\r")[-1].removesuffix("\x1b[K") for line in shown] == [
        "started  step 0",
        "step  10/500  loss 2.0  train 2.0 s  5 steps/s  0:01:38 to go",
        "saved  step 10",
        "step  15/500  loss 1.9  train 3.0 s  5 steps/s  0:01:37 to go",
        "done",
        "",
    ]
    assert all(len(part) <= 80 + len("\x1b[K") for line in shown for part in line.split("\r"))


def test_a_pipe_gets_every_line(attempt: Path) -> None:
    assert follow(attempt, stdout=subprocess.PIPE).stdout == OUTPUT


def test_the_steps_are_thinned_where_that_is_asked_for(attempt: Path) -> None:
    lines = follow(attempt, stdout=subprocess.PIPE, THIN="2").stdout.splitlines()
    assert [line[:13] for line in lines if line.startswith("step ")] == [
        "step   5/500 ", "step  15/500 ",
    ]  # fmt: skip
    assert {"started  step 0", "saved  step 10", "done"} < {*lines}
