"""One run in a terminal: its loss as a curve, and its newest sample."""

import json
import os
from pathlib import Path

import pytest

from launch.status.view import run_lines
from runs.folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that was resumed at step 200, and drew samples at two steps."""
    steps = [(1, step) for step in range(10, 310, 10)] + [(2, step) for step in range(200, 510, 10)]
    lines = (
        json.dumps({"time": 1.0 * n, "attempt": a, "step": step, "loss": 2 - step / 400})
        for n, (a, step) in enumerate(steps)
    )
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "samples").mkdir()
    for step in (200, 400):
        path = tmp_path / "samples" / f"step-{step:09d}.png"
        path.touch()
        os.utime(path, (step, step))
    return RunFolder(tmp_path)


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_curve_as_wide_as_it_is(
    run: RunFolder, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "40")
    head, *curve, sample = run_lines(run)
    assert head == "loss 0.75 at step 500; it was 1.975 at step 10"
    assert max(map(len, curve)) == width
    assert curve[1].startswith("1.98")
    assert curve[-1].split() == ["10", "255", "500"]
    assert len(curve) == 15
    assert "\x1b" not in "".join(curve)
    assert sample == f"newest sample: {run.samples / 'step-000000400.png'}"


def test_a_pipe_gets_two_lines(run: RunFolder) -> None:
    assert len(run_lines(run)) == 2


def test_a_run_without_a_loss_has_no_curve(tmp_path: Path) -> None:
    assert run_lines(RunFolder(tmp_path)) == []
