"""People see names without ids where these differ; machines get the names of the folders."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.read.find import read_logs
from analysis.read.options import ReadOptions, reading_with
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

FIRST, SECOND = "eager-1121-093000-1a2b", "compiled-1121-094000-3c4d"


def names(*folders: Path) -> list[str]:
    with reading_with(ReadOptions(short_names=True)):
        return [log.name for log in read_logs([str(folder) for folder in folders])]


def test_ids_are_left_out_where_names_differ_without_them(tmp_path: Path) -> None:
    folders = ("warm-lr-1121-093000-1a2b", "digits-71", "mine")
    assert names(*(generate_run(tmp_path / name, SyntheticRun()) for name in folders)) == [
        "warm-lr", "digits", "mine",
    ]  # fmt: skip
    assert names(tmp_path / "digits-71") == ["digits-71"]
    generate_run(tmp_path / "digits-72", SyntheticRun())
    assert names(tmp_path / "digits-71", tmp_path / "digits-72") == ["digits-71", "digits-72"]


def test_clones_and_archives_are_told_apart_by_the_folder_in_which_they_differ(
    tmp_path: Path,
) -> None:
    logs = [tmp_path / person / "logs" for person in ("anna", "bob")]
    for folder in logs:
        generate_run(folder / "digits", SyntheticRun())
    assert names(*logs) == ["anna/logs/digits", "bob/logs/digits"]
    archives = [str(folder.parent / f"{folder.parent.name}.tar.xz") for folder in logs]
    for folder, archive in zip(logs, archives, strict=True):
        assert main(["archive", str(folder / "digits"), "--out", archive]) == 0
    assert [name.split("/")[0] for name in names(*map(Path, archives))] == [
        "anna.tar.xz",
        "bob.tar.xz",
    ]


def test_people_get_a_legend_and_machines_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = generate_run(tmp_path / FIRST, SyntheticRun())
    two = generate_run(tmp_path / SECOND, SyntheticRun(ranks=2))
    assert main(["speed", str(one), str(two)]) == 0
    shown = capsys.readouterr()
    assert f"compiled: {two}" in shown.err
    assert main(["speed", str(one), str(two), "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == [FIRST, SECOND]
