"""An image that cannot be read fails the run with its name."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from runs.attempt.close import close_attempt
from runs.folder import RunFolder
from tests.real_runs import DIGITS, TINY, opened, torchrun


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Write 40 images of two classes; one is truncated, one is text."""
    folder = tmp_path / "images"
    random = np.random.default_rng(0)
    for number in range(40):
        file = folder / f"class-{number % 2}" / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file)
    truncated = folder / "class-0" / "20.png"
    truncated.write_bytes(truncated.read_bytes()[:60])
    (folder / "class-1" / "21.png").write_text("not an image")
    return folder


def run_epoch(images: Path, *more: str, ranks: int) -> tuple[RunFolder, str]:
    """Train for an epoch and a part; return the run and the event that closes its attempt."""
    data = [
        "data.source=folder", f"data.path={images}", "data.channels=3", "data.classes=2",
        "data.held_out=0.0", "train.steps=3", "log.every=1",
    ]  # fmt: skip
    run = opened(DIGITS, [*TINY, *data, *more])
    status = 0
    try:
        torchrun(run, ranks=ranks)
    except AssertionError:
        status = 1
    return run, close_attempt(run.attempt(1), status=status).event


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_fails_the_run_with_its_name(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    run, event = run_epoch(images, f"data.workers={workers}", ranks=1)
    assert event == "failed"
    last = list(run.records())[-1]
    assert last["reason"] == "data"
    assert "20.png" in last["message"] or "21.png" in last["message"]
