"""Lines of one shape, read all at once, say what they say when they are read one by one."""

import random
import re
from fractions import Fraction

import numpy as np
import pytest

from analysis.read.find import read_logs
from analysis.read.text import elastic, rows, shapes
from analysis.read.text.scan import FORMATS as KNOWN
from analysis.read.text.scan import read_text
from analysis.read.text.shapes import decimals, each_shape
from analysis.read.text.stamps import moments
from tests.analysis import foreign_logs as write
from tests.analysis.foreign_logs import FORMATS, story
from tests.analysis.read.test_hostile_files import mutate

TEXTS = [
    "titan_by_four_ranks", "titan", "dit", "ai_toolkit", "kohya", "nano_gpt", "megatron",
    "composer", "trainer_console", "trainer_dicts",
    "mlperf", "mlperf_stats",
]  # fmt: skip


def matrix(texts: list[str]):
    return np.array([list(text.encode()) for text in texts], dtype=np.uint8)


@pytest.mark.parametrize("form", [".4f", ".2f", ".3e", ".12e", "011.3f", "+.1f", ",.0f", ".17g"])
def test_numbers_are_the_very_ones_that_float_reads(form):
    rng = np.random.default_rng(0)
    for power in range(-5, 6):
        texts = [format(x, form) for x in rng.uniform(1, 10, 50) * 10.0**power]
        found = each_shape([text.encode() for text in texts], decimals)
        assert found.tolist() == [float(text.replace(",", "")) for text in texts]


@pytest.mark.parametrize(
    "text", ["nan", "-inf", "1e999", "1_0", "1.2.3", "--1", "", "N/A", "1e", "1e+"]
)
def test_what_is_no_finite_number_is_nan(text):
    assert np.isnan(each_shape([text.encode()], decimals)).all()


@pytest.mark.parametrize(
    ("text", "moment"),
    [("2024-02-29 23:59:60", 1709251200.0), ("2024-02-29T00:00:00.25", 1709164800.25),
     ("02/29/2024 00:00:01", 1709164801.0), ("2023-02-29 00:00:00", None),
     ("2024-02-29 24:00:00", None), ("2024-02-29 10:60:00", None)],
)  # fmt: skip
def test_a_stamp_is_a_moment_or_none(text, moment):
    [found] = moments(matrix([text]))
    assert found == moment if moment else np.isnan(found)


def test_days_may_change_from_one_stamp_to_the_next():
    days = ["2024-01-01 00:00:00", "2024-01-02 00:00:00", "2024-01-01 00:00:00"]
    assert np.diff(moments(matrix(days))).tolist() == [86400, -86400]


def same(a, b) -> bool:
    if len(a) != len(b):
        return False
    return all(
        x.step.tolist() == y.step.tolist()
        and x.line.tolist() == y.line.tolist()
        and x.attempt.tolist() == y.attempt.tolist()
        and x.events == y.events
        and x.values.keys() == y.values.keys()
        and all(np.array_equal(x.values[n], y.values[n], equal_nan=True) for n in x.values)
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("noise", ["none", "chatter", "colours", "prefix"])
def test_at_once_and_one_by_one_say_the_same(name, noise, tmp_path, monkeypatch):
    lines = re.split(rb"(?<=[\r\n])", getattr(write, name)(story(n=300, every=1)))
    told = {
        "none": lines,
        "chatter": [b"%s\n%s" % (b"=1" * (i % 37), x) for i, x in enumerate(lines)],
        "colours": [b"\x1b[1m\x1b[%dm%s" % (31 + i % 7, x) for i, x in enumerate(lines)],
        "prefix": [b"%d: %s" % (i % 3, x) for i, x in enumerate(lines)],
    }[noise]  # fmt: skip
    (tmp_path / "x").write_bytes(b"".join(told) + b"\nCANCELLED AT 2026 DUE TO TIME LIMIT\n")
    at_once = read_logs([str(tmp_path / "x")])
    monkeypatch.setattr(shapes, "FEWEST_ALIKE", 1 << 40)
    by_numbers = read_logs([str(tmp_path / "x")])
    monkeypatch.setattr(elastic, "FEWEST_TEXTS", 1 << 40)
    one_by_one = read_logs([str(tmp_path / "x")])
    assert same(at_once, one_by_one)
    assert same(by_numbers, one_by_one)
    assert sum(map(len, at_once)) >= 100


def mutated_alike(count: int, tmp_path, monkeypatch, *, seed: int) -> None:
    """Damaged logs say the same at once, by their numbers, and one by one."""
    rng = random.Random(seed)
    originals = [getattr(write, name)(story(n=150, every=1)) for name in TEXTS]
    path = tmp_path / "x"
    for _ in range(count):
        path.write_bytes(mutate(rng.choice(originals), rng))
        found = []
        for alike, kin in ((8, 48), (1 << 40, 8), (1 << 40, 1 << 40)):
            monkeypatch.setattr(shapes, "FEWEST_ALIKE", alike)
            monkeypatch.setattr(elastic, "FEWEST_TEXTS", kin)
            found.append(read_text(path, name="x"))
        assert same(found[0], found[2])
        assert same(found[1], found[2])


def test_damaged_logs_say_the_same_at_once_and_one_by_one_in_a_small_draw(tmp_path, monkeypatch):
    mutated_alike(80, tmp_path, monkeypatch, seed=0)


@pytest.mark.long
def test_damaged_logs_say_the_same_at_once_and_one_by_one(tmp_path, monkeypatch):
    mutated_alike(1500, tmp_path, monkeypatch, seed=1)


def test_a_colour_within_a_number_is_seen_through(tmp_path):
    lines = [f"(step={i:07d}) Train Loss: 0.\x1b[1m{i:04d}\x1b[0m" for i in range(100)]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.column("loss").tolist() == [float(f"0.{i:04d}") for i in range(100)]


def test_no_pattern_names_a_digit():
    """What makes a shape enough: texts that differ in digits are matched alike."""
    for known in KNOWN:
        inner = [field.inner for field in (known.fields or {}).values() if field.inner]
        for pattern in [known.pattern, *inner] if known.pattern else []:
            bare = re.sub(rb"\{[\d,]+\}", b"", pattern.pattern)
            assert not re.search(rb"\d", bare), pattern.pattern


def test_every_text_format_of_the_tests_is_tried():
    assert {getattr(write, name) for name in TEXTS} <= {writer for writer, _ in FORMATS.values()}


def test_numbers_of_any_width_are_read_at_once(tmp_path, monkeypatch):
    """No row is read alone: else the fast way could fail without a sign."""
    (tmp_path / "x").write_bytes(write.trainer_dicts(story(n=3000, every=1)))
    alone = []
    read_alone = rows.rows_in
    monkeypatch.setattr(rows, "rows_in", lambda *a: alone.append(a) or read_alone(*a))
    [log] = read_logs([str(tmp_path / "x")])
    assert len(log) == 3000
    assert len(alone) < 60


def test_a_name_with_a_digit_is_never_taken_for_another(tmp_path):
    lines = [str({"loss": 0.5, f"loss_{i % 3}": float(i)}) for i in range(300)]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    for name in range(3):
        column = log.column(f"loss_{name}")
        assert column[~np.isnan(column)].tolist() == list(range(name, 300, 3))


@pytest.mark.parametrize("digits", [16, 17, 18])
def test_numbers_next_to_the_middle_of_two_doubles_are_rounded_as_float_does(digits):
    rng = np.random.default_rng(0)
    middles = [Fraction(2 * int(m) + 1, 1 << 54) for m in rng.integers(1 << 52, 1 << 53, 300)]
    texts = [f"0.{int(m * 10**digits) + k:0{digits}d}" for m in middles for k in (0, 1)]
    found = each_shape([text.encode() for text in texts], decimals)
    assert found.tolist() == [float(text) for text in texts]


@pytest.mark.parametrize("name", ["trainer_dicts", "mlperf_stats", "dit"])
def test_the_size_of_the_blocks_changes_nothing(name, tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(getattr(write, name)(story(n=150, every=1)))
    whole = read_logs([str(tmp_path / "x")])
    for module in (shapes, elastic):
        monkeypatch.setattr(module, "BLOCK", 37)
    assert same(whole, read_logs([str(tmp_path / "x")]))
