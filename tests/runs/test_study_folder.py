"""Study folders: rows with any levels."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import ConfigError
from runs.folder import find_run
from runs.study_folder import StudyFolder, StudyRow

VALUES = st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text(), max_size=2)


def row(index: int, levels: dict[str, Any] | None = None, cell: str | None = None) -> StudyRow:
    return StudyRow(
        index=index, order=index, cell=cell or f"c{index}", repeat=1, shape="s", digest="d",
        levels=levels or {},
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.fixed_dictionaries({"a": VALUES, "b.c": VALUES}), max_size=5))
def test_rows_are_read_back_as_they_were_written(levels: list[dict[str, Any]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        study = StudyFolder(Path(folder))
        rows = [row(index, one) for index, one in enumerate(levels)]
        study.write_rows(rows)
        assert study.rows() == rows
        assert len(study.cells_file.read_text().splitlines()) == len(rows) + 1


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    folder = StudyFolder(tmp_path / "study-1")
    for index in range(4):
        folder.cell(f"c{index}").mkdir(parents=True)
        (folder.cell(f"c{index}") / "config.yaml").write_text("kind: pretrain\n")
    folder.write_rows([row(index) for index in range(4)])
    return folder


def test_a_study_is_not_a_run(study: StudyFolder) -> None:
    with pytest.raises(ConfigError, match="name one of them in its cells/"):
        find_run(study.path)


@pytest.mark.parametrize("text", ["", "x\ty\n1\t2\n", "index\n\n"])
def test_a_damaged_table_is_named(study: StudyFolder, text: str) -> None:
    study.cells_file.write_text(text)
    with pytest.raises(ConfigError, match="not a table of cells"):
        study.rows()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1\t1\tc1", "x\t1\tc1", "line 3: .*valid integer"),
        ("1\t1\tc1", "1\t1\t../c1", "line 3: .*match pattern"),
        ("1\t1\tc1", "1\tc1", "line 3: .*expected 6 columns, found 5"),
        ("1\t1\tc1\t1\ts\td\n", "", "a row is missing or doubled"),
    ],
)
def test_a_damaged_row_is_named(study: StudyFolder, old: str, new: str, message: str) -> None:
    text = study.cells_file.read_text()
    assert old in text
    study.cells_file.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        study.rows()
