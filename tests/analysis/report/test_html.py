"""Tables show each verdict beside the names, and say once what all rows share."""

import re

from analysis.report.html import table


def heads(rows):
    return re.findall("<th [^>]*>(.*?)</th>", table(rows))


def test_a_verdict_stands_before_numbers_and_many_names():
    row = {"run": "a", "ratio": 1.5, "n": 3, "verdict": "b is faster"}
    assert heads([row]) == ["run", "verdict", "ratio", "n"]
    cell = {"a": "1", "b": "2", "c": "3", "loss verdict": "same"}
    assert heads([cell]) == ["a", "b", "loss verdict", "c"]


def test_a_sentence_is_judged_by_its_word_and_columns_for_programs_are_not_shown():
    row = {"run": "a", "word": "slower", "verdict": "a is 5 % slower than b", "why": "x"}
    shown = table([row])
    assert '<span class="badge bad">a is 5 % slower than b</span>' in shown
    assert "word" not in shown
    assert ">x<" not in shown


def test_one_value_of_all_rows_is_a_line_below():
    rows = [{"a + b + c": level, "gpu": "A40", "verdict": "same"} for level in "xyz"]
    shown = table(rows)
    assert heads(rows) == ["a + b + c", "verdict"]
    assert "All rows: gpu A40.<" in shown
    assert heads(rows[:2]) == ["a + b + c", "gpu", "verdict"]
