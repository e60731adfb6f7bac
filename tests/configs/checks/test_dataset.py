"""Images are found with captions; what is unclear is refused with the fix."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from configs.checks.dataset import captioned_files, check_dataset, image_set
from configs.errors import ConfigError
from configs.schema import Finetune
from tests.finetune.aitoolkit_runs import finetune_config


def add(file: Path, caption: str | None = None, *, size: tuple[int, int] = (64, 64)) -> Path:
    """Save an image, and its caption as text."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "red").save(file)
    if caption is not None:
        file.with_suffix(".txt").write_text(caption)
    return file


def config(folder: Path, validation: dict[str, Any] | None = None) -> Finetune:
    data = {"folder": str(folder), "resolutions": [64]}
    return finetune_config(data=data, validation=validation or {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a data set of three images."""
    folder = tmp_path / "set"
    add(folder / "0.png", "zero")
    add(folder / "1.png", "one\n")
    add(folder / "2.png", "two")
    return folder


def test_captions_are_text_files(folder: Path) -> None:
    found = captioned_files(folder)
    assert [(each.name, each.text()) for each in found] == [
        ("0.png", "zero"),
        ("1.png", "one"),
        ("2.png", "two"),
    ]
    check_dataset(config(folder))


def test_hidden_folders_are_not_trained_on(folder: Path) -> None:
    add(folder / ".thumbs" / "0.png", "a caption")
    found = image_set(config(folder))
    assert [each.name for each in found.training] == ["0.png", "1.png", "2.png"]


def test_images_held_out_are_the_same_for_every_seed_and_never_trained_on(tmp_path: Path) -> None:
    for number in range(9):
        add(tmp_path / f"{number}.png", "a")
    found = image_set(config(tmp_path, {"held_out": 2}))
    names = [[each.name for each in images] for images in (found.training, found.held_out)]
    assert (len(names[0]), len(names[1])) == (7, 2)
    assert not set(names[0]) & set(names[1])
    add(tmp_path / "another.png", "a")
    again = [each.name for each in image_set(config(tmp_path, {"held_out": 2})).held_out]
    assert len(set(again) & set(names[1])) >= 1


def test_all_images_cannot_be_held_out(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"validation\.held_out 3: .* has 3 images"):
        check_dataset(config(folder, {"held_out": 3}))
