"""Runs and studies are found by path, name, start of a name, job id, and as the newest."""

import json
import os
from pathlib import Path

import pytest

from configs.errors import ConfigError
from runs.folder import RunFolder
from runs.jobs import save_script, scripts_folder
from runs.lookup import look_up
from runs.study_folder import StudyFolder, StudyRow


def make_run(path: Path, *, made_s: int, job: str | None = None) -> RunFolder:
    (path / "attempts").mkdir(parents=True)
    (path / "config.yaml").touch()
    os.utime(path / "config.yaml", (made_s, made_s))
    if job is not None:
        RunFolder(path).note(1, slurm={"job": job})
    return RunFolder(path)


@pytest.fixture
def logs(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs called digits, one called warm-lr, and a study of two cells, the newest."""
    make_run(logs / "digits-71", made_s=1)
    make_run(logs / "digits-1121-093000-1234", made_s=2, job="72")
    make_run(logs / "warm-lr-1121-093001-ab12", made_s=3, job="73")
    study = StudyFolder(logs / "layouts-1121-093002-ab12")
    study.jobs.mkdir(parents=True)
    names = ["n1", "n2"]
    study.write_rows(
        StudyRow(index=i, order=i, cell=name, repeat=1, shape="s", digest="d", levels={})
        for i, name in enumerate(names)
    )
    for name in names:
        scripts_folder(make_run(study.cell(name), made_s=4)).mkdir()
    save_script(RunFolder(study.cell("n2")), "80", "")
    monkeypatch.chdir(tmp_path)
    return logs


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("warm-lr-1121-093001-ab12", "warm-lr-1121-093001-ab12"),
        ("warm", "warm-lr-1121-093001-ab12"),
        ("layouts", "layouts-1121-093002-ab12"),
        ("n2", "layouts-1121-093002-ab12/cells/n2"),
        ("layouts-1121-093002-ab12/cells/n1", "layouts-1121-093002-ab12/cells/n1"),
        ("71", "digits-71"),
        ("72", "digits-1121-093000-1234"),
        ("80", "layouts-1121-093002-ab12/cells/n2"),
        ("last", "layouts-1121-093002-ab12"),
    ],
)
def test_a_name_or_a_job_means_a_folder(logs: Path, name: str, found: str) -> None:
    assert look_up(name) == logs / found


def test_a_path_that_exists_wins(logs: Path) -> None:
    Path("warm").touch()
    assert look_up("warm") == Path("warm")


@pytest.mark.parametrize("name", ["1234", "99_1", "configs/none", "none.yaml"])
def test_an_unknown_job_or_path_is_left_to_the_command(logs: Path, name: str) -> None:
    assert look_up(name) == Path(name)


def test_a_name_that_fits_several_lists_them(logs: Path) -> None:
    with pytest.raises(ConfigError, match="fits 2 folders") as error:
        look_up("digits")
    assert str(logs / "digits-71") in str(error.value)


@pytest.mark.parametrize("name", ["nonesuch", "\0", "a" * 300])
def test_a_name_that_fits_nothing_is_refused(logs: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no run or study in"):
        look_up(name)


def test_a_run_of_somebody_else_is_not_the_last(logs: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(ConfigError, match="last: no such"):
        look_up("last")


def test_a_damaged_manifest_hides_no_other_run(logs: Path) -> None:
    for text in ("", "[]", json.dumps({"attempts": [3]}), '{"attempts": null}'):
        RunFolder(logs / "digits-71").manifest_file.write_text(text)
        assert look_up("73") == logs / "warm-lr-1121-093001-ab12"
