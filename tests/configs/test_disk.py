"""Files are written whole or not at all, and never through a link that somebody else made."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.__main__ import main
from configs.disk import read_safetensors_header, replace_file, replacing
from configs.errors import ConfigError
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(TypeError), replacing(file) as stream:
        stream.write("half")  # type: ignore[arg-type]
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "file").symlink_to("mine")
    replace_file(tmp_path / "file", "new")
    assert (tmp_path / "mine").read_text() == "precious"
    assert (tmp_path / "file").read_text() == "new"


def test_a_file_follows_the_umask_and_its_name_may_have_255_bytes(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / ("x" * 255), "new")
    finally:
        os.umask(before)
    assert (tmp_path / ("x" * 255)).stat().st_mode & 0o777 == 0o640


def test_links_of_another_user_overwrite_no_file(
    shared: Path, intruder: Callable[[str], None], tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for name in ("run", "other"):
        generate_run(shared / name, SyntheticRun(intervals=20))
    for name in (".analysis-runs.json", "report.html", "loss.png", "loss.svg"):
        intruder(f"ln -s {mine} {name}")
    intruder(f"ln -s {mine}.2 all.tar.xz")
    run = str(shared / "run")
    assert main(["runs", str(shared)]) == 0
    assert main(["report", run, "--out", str(shared / "report.html")]) == 0
    assert main(["archive", run, "--out", str(shared / "all.tar.xz")]) == 0
    for name in ("loss.png", "loss.svg"):
        assert main(["loss", run, str(shared / "other"), "--plot", str(shared / name)]) == 0
    assert mine.read_text() == "precious"
    assert not (tmp_path / "mine.2").exists()


_ENTRY = '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [%s]}}'


@pytest.mark.parametrize(
    "header",
    ["[" * 90_000, '{"a":' * 90_000, "7", _ENTRY % "-9, 4", _ENTRY % "-5, -4", _ENTRY % "4, 0",
     _ENTRY % "0, 1e999", _ENTRY % "0", _ENTRY.replace("[1]", "[-1]") % "0, 4",
     _ENTRY.replace("[1]", '["x"]') % "0, 4"],
    ids=lambda header: header[:9] + header[-24:],
)  # fmt: skip
def test_a_header_that_names_no_place_in_the_file_is_refused(tmp_path: Path, header: str) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(4))
    with pytest.raises(ConfigError, match="not a safetensors file; copy it again"):
        read_safetensors_header(file)
