"""Cutting the lines of a text at their numbers."""

import random
import re

import numpy as np
import pytest

from analysis.read.text.lines import HOLE, cut_lines
from analysis.read.text.values import clock_s, plain_numbers

NUMBER = re.compile(
    r"[0-9]++(?:[.:][0-9]++|[,_'][0-9]{3}(?![0-9]))*+(?:[eE][-+]?[0-9]++)?+|(?:nan|NaN|inf)\b"
)


def random_text(seed: int) -> str:
    draw = random.Random(seed)
    signs = ["0123456789", "..::,,__''eeEE+-", " \nabé", "123456789012"]
    words = ["nan", "NaN", "info", "inf", "1e-4", "3e4e5e6", "1,234", "12:30:05.25", "0,5"]
    parts = [draw.choice([draw.choice(draw.choice(signs)), draw.choice(words)]) for _ in range(400)]
    return "".join(parts)


@pytest.mark.parametrize("seed", range(40))
def test_lines_are_cut_where_a_pattern_finds_numbers(seed: int) -> None:
    text = random_text(seed)
    lines = cut_lines(text)
    assert lines.gaps == NUMBER.sub(HOLE, lines.text).split("\n")
    for line, printed in enumerate(lines.text.split("\n")):
        assert lines.numbers(line) == NUMBER.findall(printed)
        assert lines.whole(line) == printed


@pytest.mark.parametrize("text", ["", "\n", "no number", "info", "7", "7\n", "\n7", "loss 0"])
def test_a_text_may_begin_or_end_with_a_number_or_have_none(text: str) -> None:
    lines = cut_lines(text)
    numbers = [number for line in range(len(lines.gaps)) for number in lines.numbers(line)]
    assert (lines.gaps, numbers) == (NUMBER.sub(HOLE, text).split("\n"), NUMBER.findall(text))


def plain(texts: list[str], *, is_clock: bool = False) -> tuple[list[float], bool] | None:
    ends = np.cumsum([len(text) for text in texts])
    begins = np.concatenate([[0], ends[:-1]])
    signs = np.frombuffer("".join(texts).encode(), dtype=np.uint8)
    found = plain_numbers(signs, begins, ends, is_clock=is_clock)
    return None if found is None else (found[0].tolist(), found[1])


def test_plain_numbers_are_those_nearest_to_what_is_printed() -> None:
    draw = random.Random(0)
    texts = [f"{draw.uniform(-9, 9) * 10.0 ** draw.randint(-5, 5):.{n % 8}f}" for n in range(4000)]
    texts = [text for text in texts if len(text) <= 15]
    assert plain(texts) == ([float(text) for text in texts], True)
    assert plain(["12", "+7", "-0"]) == ([12.0, 7.0, 0.0], False)


def test_plain_clocks_are_in_seconds() -> None:
    texts = ["01:05", "1:02:03", "100:00:00", "12:30.25"]
    assert plain(texts, is_clock=True) == ([clock_s(text) for text in texts], True)


@pytest.mark.parametrize(
    "text", ["1e-4", "1,234", "1.2.3", "12:30", "1_000", "1234567890.12345", "5-3"]
)
def test_other_numbers_are_not_plain(text: str) -> None:
    assert plain(["1", text]) is None


@pytest.mark.parametrize("text", ["12", "1:2:3:4", "-1:30", "1.5:30"])
def test_other_durations_are_no_plain_clocks(text: str) -> None:
    assert plain(["01:05", text], is_clock=True) is None
