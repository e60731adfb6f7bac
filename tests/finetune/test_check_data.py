"""`python -m finetune check-data` names each problem of captioned images, with the fix."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from finetune.__main__ import main

COUNT = 6


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder of six good images with captions."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"[trigger], number {number}\n")
    return folder


def run_check(
    folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, list[str]]:
    code = main(["check-data", str(folder), "--resolution", "64", *more])
    return code, capsys.readouterr().out.splitlines()


def test_a_good_folder_has_no_faults(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_check(images, capsys) == (0, [])


def as_mode(mode: str) -> Callable[[Path], None]:
    def convert(folder: Path) -> None:
        Image.open(folder / "2.png").convert(mode).save(folder / "2.png")

    return convert


def too_few(folder: Path) -> None:
    for number in (3, 4):
        (folder / f"{number}.png").unlink()
        (folder / f"{number}.txt").unlink()


def duplicate(folder: Path) -> None:
    """Save the same pixels with another compression."""
    Image.open(folder / "1.png").save(folder / "2.png", compress_level=0)


def small(folder: Path) -> None:
    Image.open(folder / "2.png").crop((0, 0, 80, 40)).resize((80, 40)).save(folder / "2.png")


def rotated(folder: Path) -> None:
    image = Image.open(folder / "2.png")
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(folder / "2.png", exif=exif)


@pytest.mark.parametrize(
    ("spoil", "level", "text"),
    [
        (lambda f: (f / "2.txt").unlink(), "fault", "2.png: has no caption; fix: write 2.txt"),
        (lambda f: (f / "2.txt").write_text(" \n"), "fault", "2.txt: is empty; fix: write one"),
        (lambda f: (f / "2.txt").write_bytes(b"[trigger] caf\xe9"), "fault", "2.txt: not UTF-8"),
        (lambda f: (f / "2.txt").write_text("a dog"), "fault", "2.txt: does not contain [trigger]"),
        (lambda f: (f / "x.txt").write_text("a"), "fault", "x.txt: a caption without an image"),
        (lambda f: (f / "x.heic").touch(), "remark", "x.heic: neither a readable image format"),
        (lambda f: shutil.copy(f / "1.png", f / "2.jpg"), "fault", "2.png: shares the caption"),
        (too_few, "fault", "4 images are too few"),
        (lambda f: (f / "2.png").write_bytes(b"PNG"), "fault", "2.png: not a readable image"),
        (small, "fault", "2.png: 80 x 40 px, less than 64 x 64; fix: use a larger original"),
        (as_mode("RGBA"), "fault", "2.png: mode RGBA: its transparency would be dropped"),
        (as_mode("P"), "fault", "2.png: mode P: it has a colour palette"),
        (as_mode("L"), "fault", "2.png: mode L: it is grey"),
        (as_mode("1"), "fault", "2.png: mode 1: it is black and white"),
        (duplicate, "fault", "2.png: the same pixels as 1.png"),
        (rotated, "remark", "2.png: rotated by an EXIF tag"),
    ],
)
def test_each_problem_is_named_with_the_fix(
    spoil: Callable[[Path], object],
    level: str,
    text: str,
    images: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(images)
    code, lines = run_check(images, capsys)
    assert code == (level == "fault")
    assert any(line.startswith(level) and text in line and "; fix: " in line for line in lines), (
        lines
    )


def test_a_missing_folder_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-data", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_sheet_shows_every_image_and_marks_unreadable_ones(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "sheet.png"
    run_check(images, capsys, "--sheet", str(whole))
    (images / "5.png").write_bytes(b"x")
    spoiled = tmp_path / "spoiled.png"
    run_check(images, capsys, "--sheet", str(spoiled))
    sheet, other = (np.asarray(Image.open(file)) for file in (whole, spoiled))
    assert sheet.shape == other.shape
    changed = np.argwhere((sheet != other).any(axis=2))
    # The sixth image is the first of the second row.
    assert changed[:, 0].min() > sheet.shape[0] // 2
    assert changed[:, 1].max() < sheet.shape[1] // 2
    red = (other == [255, 0, 0]).all(axis=2).sum()
    assert red > (sheet == [255, 0, 0]).all(axis=2).sum()
