"""A grid of samples holds images that were drawn alike, each in the row of its own run."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from analysis.read.find import read_logs
from analysis.report.samples import (
    SampleSeries,
    grid_columns,
    picture,
    sample_grids,
    samples,
    series_of,
)
from configs.load import merge, resolve, to_tree
from configs.yaml12 import dump_yaml
from runs.folder import RunFolder
from tests.analysis.commands.test_finetune import A40, A100, drawn, save_sample, tuned


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two GPUs, two numbers of steps."""
    return [
        str(tuned(tmp_path / f"{gpu[7:11]}-{steps}", gpu=gpu, steps=steps, steps_per_s=0.3))
        for gpu in (A100, A40)
        for steps in (500, 2000)
    ]


def grids(folders: list[str]) -> list[list[SampleSeries]]:
    return sample_grids([one for log in read_logs(folders) for one in series_of(log)])


def section(folders: list[str], *, most_images: int = 100) -> str:
    return samples(read_logs(folders), most_images=most_images)


def test_a_cell_without_an_image_stays_empty(runs: list[str]) -> None:
    (grid,) = grids(runs)
    assert grid[0].drawing["prompt"] == "a thing at sea"
    assert grid_columns(grid, most=12) == [0, 500, 2000]
    assert [sorted(one.files) for one in grid] == [[0, 500], [0, 2000]] * 2
    shown = section(runs)
    assert "a thing at sea (noise of seed 42)" in shown
    # The runs of 500 steps have none of step 2000, though others on that GPU do.
    rows = shown.split("<tr>")[2:]
    assert [row.count("<td></td>") for row in rows] == [1, 1, 1, 1]
    assert [row.endswith("<td></td></tr>") for row in rows[::2][:1]] == [True]


def test_runs_that_drew_otherwise_have_a_grid_of_their_own_that_says_how(runs: list[str]) -> None:
    other = RunFolder(Path(runs[1]))
    asked = merge(other.config_tree(), {"sample.steps": 7})
    other.config_file.write_text(dump_yaml(to_tree(resolve(asked, source="test"))))
    found = grids(runs)
    assert [[one.log.path.name for one in grid] for grid in found] == [
        ["A100-500", "A40-500", "A40-2000"], ["A100-2000"],
    ]  # fmt: skip
    shown = section(runs)
    for steps in (4, 7):
        assert f"a thing at sea, sample.steps {steps} (noise of seed 42)" in shown


def test_a_setting_that_changed_within_a_run_is_shown_with_all_its_values(runs: list[str]) -> None:
    (log,) = read_logs(runs[:1])
    changed = replace(log, changed={"sample.guidance": "1.5, then 4.0"})
    assert next(series_of(changed)).drawing["sample.guidance"] == "1.5, then 4.0"


def test_many_runs_have_their_first_and_last_steps_and_what_is_left_out_is_said(
    runs: list[str], tmp_path: Path
) -> None:
    for step in range(20, 500, 20):
        save_sample(Path(runs[0]), step)
    (grid,) = grids(runs[:1])
    assert len(grid_columns(grid, most=12)) == 12
    assert grid_columns(grid, most=2) == [0, 500]
    assert section(runs, most_images=8).count("data-run") == 6
    assert "The first 2 of 4 series" in section(runs, most_images=4)


def test_images_of_an_inference_run_stand_by_number(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "infer")
    for number in range(3):
        file = folder / "samples" / "prompt-00" / f"image-{number:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(file)
    Image.new("RGB", (48, 16)).save(folder / "samples" / "all.png")
    (grid,) = grids([str(folder)])
    assert grid_columns(grid, most=12) == [0, 1, 2]
    assert "image 2" in section([str(folder)])


def test_a_large_image_becomes_a_small_jpeg_and_a_small_one_keeps_its_pixels(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.png"
    Image.radial_gradient("L").resize((1024, 512)).save(file)
    large = picture(file)
    assert large is not None
    assert large.startswith("data:image/jpeg;base64,")
    assert len(large) < 27_000
    Image.new("RGB", (8, 8), (1, 2, 3)).save(file)
    small = picture(file)
    assert small is not None
    assert small.startswith("data:image/png;base64,")
