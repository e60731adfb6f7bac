"""Tables fit the width of the output: no number is cut, and nothing is left out in silence."""

import csv
import io
import re

import pytest

from configs.table import csv_text, output_width, text_table

WIDE = [
    {
        "run": f"a-long-name-of-a-study-{run}-with-an-id-0930-{run:04d}",
        "clock": "train",
        "steps": f"{run}23456/1000000",
        "loss": 0.1234567 + run,
        "money_per_million_images": 1234567.0 * (run + 1),
        "speedup": f"{run}.16x [0.94, 1.43]",
        "verdict": f"no detectable difference, within-run only ({run})",
    }
    for run in range(3)
]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch):
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


def test_numbers_stand_right_and_absent_values_are_empty() -> None:
    found = text_table([{"run": "a", "x": 1.5, "y": None}, {"run": "long", "x": None, "y": None}])
    assert found == "run     x\na     1.5\nlong"


def test_control_characters_are_escaped() -> None:
    assert text_table([{"run": "a\x1b[31mb", "steps": 3}]).splitlines()[1] == "a\\x1b[31mb      3"


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_table_fits_and_every_number_is_whole_or_its_column_is_named(width: int, columns) -> None:
    columns(width)
    text = text_table(WIDE, drop=("money_per_million_images",))
    caption, *lines = text.splitlines()
    last = lines.pop() if lines[-1].startswith("left out: ") else ""
    assert caption == "all rows: clock train"
    assert max(map(len, lines)) <= width
    for row in WIDE:
        for name in ("steps", "loss", "money_per_million_images", "speedup"):
            number = {"loss": "{:.4g}", "money_per_million_images": "{:,.0f}"}.get(name, "{}")
            shown = re.search(rf"(^|\s){re.escape(number.format(row[name]))}($|\s)", text, re.M)
            assert bool(shown) != (name.replace("_per_", "/").replace("_", " ") in last), name
    assert width < 160 or not last


def test_columns_go_in_the_order_declared(columns) -> None:
    columns(60)
    *_, last = text_table(WIDE, drop=("money_per_million_images", "loss")).splitlines()
    assert last == "left out: money/million images, loss, steps (--all shows them)"


def test_long_names_wrap_and_stay_whole(columns) -> None:
    columns(20)
    names = [f"{'x' * 40}{n}{'y' * 40}" for n in (1, 2)]
    lines = text_table([{"run": name} for name in names]).splitlines()
    assert max(map(len, lines)) <= 20
    assert "".join(lines[1:]) == "".join(names)


def test_sentences_wrap_between_words(columns) -> None:
    columns(40)
    rows = [{"n": n, "why": f"the {n}. limit is near and nothing was saved yet"} for n in (1, 2)]
    lines = text_table(rows).splitlines()[1:3]
    assert lines == ["1  the 1. limit is near and nothing was", "   saved yet"]


def test_everything_is_shown_on_demand(columns) -> None:
    columns(30)
    text = text_table(WIDE, whole=True)
    assert all(str(row[name]) in text for row in WIDE for name in ("run", "clock", "verdict"))


def test_equal_digits_of_different_values_are_not_called_the_same() -> None:
    rows = [{"run": n, "loss": 1.44100001 + n * 1e-9} for n in range(2)]
    assert "all rows" not in text_table(rows)


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"run": "a", "state": "failed"}, {"run": "b", "state": "done"}]
    assert "\x1b" not in text_table(rows)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b[31mfailed" in text_table(rows)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in text_table(rows)


def test_a_pipe_gets_at_most_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output_width() <= 100


def test_a_spreadsheet_is_given_no_formula() -> None:
    found = csv_text([{"run": "=1+1", "@x": -1.5}, {"run": "-1e-4", "@x": None}])
    assert list(csv.reader(io.StringIO(found))) == [
        ["run", "'@x"],
        ["'=1+1", "-1.5"],
        ["-1e-4", ""],
    ]
