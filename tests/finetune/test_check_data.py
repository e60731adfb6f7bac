"""`python -m finetune check-data` names each problem of captioned images, with the fix."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from configs.yaml12 import dump_yaml
from finetune.__main__ import main
from tests.finetune.conftest import TINY, paths

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


def text(name: str, content: str, encoding: str = "utf-8") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content.encode(encoding))

    return write


def huge(folder: Path) -> None:
    """Write a PNG whose header tells of more pixels than a camera has."""
    Image.new("1", (12_000, 12_000)).save(folder / "2.png")


def animated(folder: Path) -> None:
    frames = [Image.open(folder / f"{number}.png") for number in (2, 3)]
    frames[0].save(folder / "2.webp", save_all=True, append_images=frames[1:])
    (folder / "2.png").unlink()


@pytest.mark.parametrize(
    ("spoil", "level", "text"),
    [
        (lambda f: (f / "2.txt").unlink(), "fault", "2.png: no caption; fix: write 2.txt"),
        (lambda f: (f / "2.txt").write_text(" \n"), "fault", "2.txt is empty; fix: write one"),
        (lambda f: (f / "2.txt").write_bytes(b"[trigger] caf\xe9"), "fault", "2.txt: not UTF-8"),
        (lambda f: (f / "2.txt").write_text("a dog"), "remark", "2.txt names no [trigger]"),
        (lambda f: (f / "x.txt").write_text("a"), "fault", "x.txt: a caption without an image"),
        (lambda f: (f / "x.heic").touch(), "remark", "x.heic: neither a readable image format"),
        (
            lambda f: shutil.copy(f / "1.png", f / "2.jpg"),
            "fault",
            "2.jpg: shares its caption with 2.png",
        ),
        (too_few, "fault", "4 images are too few"),
        (lambda f: (f / "2.png").write_bytes(b"PNG"), "fault", "2.png: not a readable image"),
        (small, "fault", "2.png: 80 x 40 px, less than 64 x 64; fix: use a larger original"),
        (as_mode("RGBA"), "fault", "2.png: mode RGBA: its colours would be converted"),
        (as_mode("L"), "fault", "2.png: mode L: its colours would be converted"),
        (duplicate, "fault", "2.png: the same pixels as 1.png"),
        (text("2.txt", "a 犬\0"), "fault", "2.txt: holds NUL bytes"),
        (text("2.txt", "犬と海", "cp932"), "fault", "save it as UTF-8 where it was written"),
        (huge, "fault", "2.png: more than 89,478,485 pixels; fix: scale it down"),
        (animated, "fault", "2.webp: animated, and only the first frame is used"),
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


def test_an_impossible_resolution_is_misuse(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-data", str(images), "--resolution", "0"]) == 2
    assert "data.resolutions: none may be under data.bucket 16" in capsys.readouterr().err


def test_a_written_out_trigger_is_no_problem(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in images.glob("*.txt"):
        file.write_text("sks dog at the sea")
    code, lines = run_check(images, capsys)
    assert (code, len(lines)) == (0, COUNT)
    assert run_check(images, capsys, "--trigger", "sks dog") == (0, [])


@pytest.mark.xdist_group("flux")
def test_a_config_is_checked_with_its_keys(
    flux: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = Path(shutil.copytree(flux / "images", tmp_path / "images"))
    changes = [*paths(flux), f"data.folder={images}", "data.resolutions=[64]"]
    assert main(["check-data", str(TINY), *changes]) == 0
    assert not [line for line in capsys.readouterr().out.splitlines() if "fault" in line]
    assert main(["check-data", str(TINY), *changes, "data.trigger=null"]) == 1
    assert "no trigger word is set; fix: set data.trigger" in capsys.readouterr().out


def test_captions_of_images_held_out_are_no_faults(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "held.yaml"
    keys = {"folder": str(images), "trigger": "sks", "resolutions": [64], "bucket": 16}
    config = {"kind": "finetune", "flux": {"folder": "/f"}, "data": keys}
    file.write_text(dump_yaml(config | {"sample": {"prompts": "a"}}))
    codes = [main(["check-data", str(file), f"validation.held_out={n}"]) for n in (0, 1)]
    assert codes == [0, 0]
    assert "without an image" not in capsys.readouterr().out
