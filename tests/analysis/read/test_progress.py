"""Reading of many runs says so, and nothing unpacks to more than a bound."""

import io
import tarfile
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.read import tar_archive
from analysis.read.find import read_logs
from configs import progress
from configs.errors import Unreadable
from launch.__main__ import main as launch
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.mark.parametrize(
    "names", [[f"r/{n:06d}/metrics.jsonl" for n in range(9)], ["a/" * 33 + "config.yaml"]]
)
def test_an_archive_of_many_or_deep_folders_is_refused(
    tmp_path: Path, monkeypatch, names: list[str]
) -> None:
    monkeypatch.setattr(tar_archive, "MOST_FILES", 8)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(Unreadable, match=r"^\S*x\.tar: too large for an archive of logs"):
        read_logs([str(tmp_path / "x.tar")])


def test_commands_that_read_many_runs_say_so(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(3):
        generate_run(tmp_path / "logs" / f"r{number}", SyntheticRun(intervals=30))
    assert main(["runs", str(tmp_path / "logs")]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_FIRST_S", 0.0)
    for words in (["analysis", "runs"], ["analysis", "cost"], ["launch", "status"]):
        run = main if words[0] == "analysis" else launch
        assert run([words[1], str(tmp_path / "logs")]) == 0
        err = capsys.readouterr().err
        assert f"looking for runs in {tmp_path / 'logs'}, folders: 1 so far\n" in err
        assert "reading the " in err
