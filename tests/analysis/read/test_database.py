"""A database of anybody is read without running what it defines."""

import sqlite3
import time
from pathlib import Path

import pytest

from analysis.read import database
from analysis.read.other_logs import read_file
from configs.errors import Unreadable
from tests.analysis.foreign_logs import database as write
from tests.analysis.foreign_logs import synthetic_log

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as file:
        for statement in statements:
            file.execute(statement)
    file.close()


@pytest.mark.parametrize(
    ("table", "statements"),
    [
        ("steps", [f"CREATE VIEW steps AS {ENDLESS.format('i AS step, i AS wall_time')}"]),
        ("metrics", [f"CREATE VIEW metrics AS {ENDLESS.format('i AS step, i AS value_real')}"]),
        ("metrics", ["CREATE VIRTUAL TABLE metrics USING fts4(step, key, value_real)"]),
        (
            "steps",
            ["CREATE TABLE steps (step, wall_time AS (length(hex(zeroblob(step * 1000)))))"],
        ),
    ],
)
def test_what_is_computed_is_refused_at_once(
    tmp_path: Path, table: str, statements: list[str]
) -> None:
    path = tmp_path / "loss_log.db"
    write(synthetic_log(n=9), path)
    assert len(read_file(path, name="x")[0]) == 9
    change(path, f"DROP TABLE {table}", *statements)
    began = time.monotonic()
    with pytest.raises(Unreadable, match=f"loss_log.db: {table} is computed, not a table"):
        read_file(path, name="x")
    assert time.monotonic() - began < 5


def test_a_value_larger_than_any_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "loss_log.db"
    write(synthetic_log(n=9), path)
    change(path, "INSERT INTO metrics SELECT 1, hex(zeroblob(2000000)), 1")
    with pytest.raises(Unreadable, match=r"damaged database \(string or blob too big\)"):
        read_file(path, name="x")


def test_work_is_bounded_by_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "loss_log.db"
    write(synthetic_log(n=9000), path)
    assert len(read_file(path, name="x")[0]) == 9000
    monkeypatch.setattr(database, "_STEPS_AT_ONCE", 10)
    monkeypatch.setattr(database, "_LEAST_STEPS", 0)
    monkeypatch.setattr(database, "_STEPS_PER_BYTE", 0.01)
    with pytest.raises(Unreadable, match="takes more work than a file of its size can need"):
        read_file(path, name="x")


def test_nothing_is_written_beside_a_database(tmp_path: Path) -> None:
    path = tmp_path / "loss_log.db"
    write(synthetic_log(n=9), path)
    before = path.read_bytes()
    tmp_path.chmod(0o500)
    read_file(path, name="x")
    assert [path.read_bytes(), list(tmp_path.iterdir())] == [before, [path]]
