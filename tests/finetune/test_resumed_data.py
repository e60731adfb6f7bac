"""A run is not resumed on data other than that which it began with."""

import re
import shutil
from pathlib import Path

import pytest

from configs.errors import ConfigError
from launch.plan.checks import run_checks
from launch.submit.run import run_request
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from tests.finetune.conftest import TINY, paths

pytestmark = pytest.mark.xdist_group("flux")


@pytest.fixture
def images(flux: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(flux / "images", tmp_path / "images"))


@pytest.fixture
def run(flux: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    monkeypatch.delenv("AI_TOOLKIT", raising=False)
    keys = [*paths(flux), f"data.folder={images}", "engine=embedded"]
    attempt = open_attempt(TINY, keys, kind="finetune")
    assert attempt is not None
    run = RunFolder(attempt.parent.parent)
    (run.checkpoints / "step-000000020").mkdir(parents=True)
    return run


def edit_caption(images: Path) -> None:
    (images / "02.txt").write_text("another caption\n")


def replace_image(images: Path) -> None:
    shutil.copyfile(images / "00.png", images / "02.png")


def remove(images: Path) -> None:
    (images / "02.png").unlink()


def add(images: Path) -> None:
    for suffix in (".png", ".txt"):
        shutil.copyfile((images / "00").with_suffix(suffix), (images / "02b").with_suffix(suffix))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (edit_caption, "02.png or its caption has changed (1 of 5 images)"),
        (replace_image, "02.png or its caption has changed"),
        (remove, "02.png was removed"),
        (add, "02b.png was added (1 of 6 images)"),
    ],
)
def test_a_resume_over_changed_data_is_refused_with_the_image(
    run: RunFolder, images: Path, change: object, told: str
) -> None:
    assert callable(change)
    change(images)
    with pytest.raises(ConfigError) as refused:
        open_attempt(run.path, [], kind="finetune")
    assert told in str(refused.value)
    assert "step 20 learnt from what was there" in str(refused.value)
    assert f"start a new run with {run.config_file}" in str(refused.value)
    found = next(run_checks(run_request(run.path, [], site_name=None, extra={}), None))
    assert re.search(r"since tiny-.* began", found.message)
    assert run.attempts() == [1]


def test_data_may_be_touched_at_any_time_and_changed_before_the_first_checkpoint(
    run: RunFolder, images: Path
) -> None:
    (images / "02.png").touch()
    assert open_attempt(run.path, [], kind="finetune")
    shutil.rmtree(run.checkpoints)
    edit_caption(images)
    assert open_attempt(run.path, [], kind="finetune")
    # From then on the run depends on the new caption.
    (run.checkpoints / "step-000000020").mkdir(parents=True)
    assert open_attempt(run.path, [], kind="finetune")
    (images / "02.txt").write_text("a third caption\n")
    with pytest.raises(ConfigError, match="its caption has changed"):
        open_attempt(run.path, [], kind="finetune")
