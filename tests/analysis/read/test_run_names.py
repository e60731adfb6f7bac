"""Runs are named by what differs between them; machines get the names of the folders."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.read.find import read_logs
from analysis.read.options import ReadOptions, reading_with
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

FIRST, SECOND = "digits-1121-093000-1a2b", "digits-1121-094000-3c4d"


def names(*folders: Path) -> list[str]:
    with reading_with(ReadOptions(short_names=True)):
        return [log.name for log in read_logs([str(folder) for folder in folders])]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (SyntheticRun(ranks=2), ["ranks=1", "ranks=2"]),
        (SyntheticRun(gpu="NVIDIA A100"), ["gpu=NVIDIA A40", "gpu=NVIDIA A100"]),
        (SyntheticRun(overrides=("optimizer.lr=0.5",)), ["lr=0.0001", "lr=0.5"]),
        # Equal runs, and runs that differ in much, have no better name than their folder.
        (SyntheticRun(), [FIRST, SECOND]),
        (
            SyntheticRun(ranks=2, overrides=("optimizer.lr=0.5", "train.precision=fp32")),
            [FIRST, SECOND],
        ),
    ],
)
def test_runs_of_one_config_are_named_by_what_differs(
    tmp_path: Path, other: SyntheticRun, expected: list[str]
) -> None:
    one, two = (
        generate_run(tmp_path / FIRST, SyntheticRun()),
        generate_run(tmp_path / SECOND, other),
    )
    assert names(one, two) == expected


def test_ids_are_left_out_where_names_differ_without_them(tmp_path: Path) -> None:
    folders = ("warm-lr-1121-093000-1a2b", "digits-71", "mine")
    assert names(*(generate_run(tmp_path / name, SyntheticRun()) for name in folders)) == [
        "warm-lr", "digits", "mine",
    ]  # fmt: skip
    assert names(tmp_path / "digits-71") == ["digits-71"]


def test_people_get_a_legend_and_machines_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = generate_run(tmp_path / FIRST, SyntheticRun())
    two = generate_run(tmp_path / SECOND, SyntheticRun(ranks=2))
    assert main(["speed", str(one), str(two)]) == 0
    shown = capsys.readouterr()
    assert "ranks=2" in shown.out
    assert f"ranks=2: {two}" in shown.err
    assert main(["speed", str(one), str(two), "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == [FIRST, SECOND]
