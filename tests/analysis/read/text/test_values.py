"""Numbers, durations and time stamps are read as printed, wherever a file is cut into pieces."""

import re

import numpy as np
import pytest

from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from analysis.read.text.values import clock_s, moments, numbers
from configs.errors import Unreadable
from tests.analysis import foreign_logs as write
from tests.analysis.foreign_logs import synthetic_log

TEXTS = ["titan_by_four_ranks", "dit", "ai_toolkit", "composer", "trainer_dicts", "mlperf"]


@pytest.mark.parametrize("form", [".4f", ".2f", ".3e", ".12e", "011.3f", "+.1f", ",.0f", ".17g"])
def test_numbers_are_the_very_ones_that_float_reads(form):
    rng = np.random.default_rng(0)
    for power in range(-5, 6):
        texts = [format(x, form) for x in rng.uniform(1, 10, 50) * 10.0**power]
        found = numbers(texts)
        assert found.tolist() == [float(text.replace(",", "")) for text in texts]


@pytest.mark.parametrize("text", ["1_0", "1.2.3", "--1", "", "N/A", "1e", "1e+"])
def test_a_text_that_is_no_number_is_nan(text):
    assert np.isnan(numbers([text, "1"])[0])


@pytest.mark.parametrize("text", ["nan", "-inf", "1e999"])
def test_a_printed_number_that_is_not_finite_is_kept_apart_from_none(text):
    assert np.isinf(numbers([text, "1"])[0])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:07", 7), ("59:59", 3599), ("1:00:00", 3600), ("100:00:01", 360001),
     ("2 days, 0:17:31", 2 * 86400 + 1051), ("30m 12s", 1812), ("1h 02m 33s", 3753),
     ("1d 02h 30m", 95400), ("soon", None), ("", None)],
)  # fmt: skip
def test_a_duration_is_read_in_every_form(text, seconds):
    found = clock_s(text)
    assert found == seconds if seconds else np.isnan(found)


@pytest.mark.parametrize(
    ("text", "moment"),
    [("2024-02-29 23:59:60", 1709251200.0), ("2024-02-29T00:00:00.25", 1709164800.25),
     ("2024/02/29 00:00:00,5", 1709164800.5), ("02/29/2024 00:00:01", 1709164801.0),
     ("Feb 29 00:00:10", 68169610.0), ("I0229 00:00:10", 68169610.0),
     ("20240229 00:00:01", 1709164801.0), ("2023-02-29 00:00:00", None),
     ("2024-02-29 24:00:00", None), ("2024-02-29 10:60:00", None)],
)  # fmt: skip
def test_a_stamp_is_a_moment_or_none(text, moment):
    for texts in ([text], [text, "2024-01-01 00:00:00"]):
        found = moments(texts)
        assert found[0] == moment if moment else np.isnan(found[0])


def test_stamps_without_a_year_differ_by_what_passed_between_them():
    assert np.diff(moments(["02/28 23:59:00", "02/29 00:01:00"])).tolist() == [120]


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_comma_of_decimals_is_no_sign_of_thousands(sign, digits, tmp_path):
    lines = [sign.join(["step", "loss", "step_s"])]
    for n in range(1, 60):
        loss, seconds = (f"{one:.{digits}f}".replace(".", ",") for one in (0.2 + 2 / n, 0.5))
        lines.append(sign.join([str(n), loss, seconds]))
    (tmp_path / "x.csv").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x.csv")])
    assert log.column("loss") == pytest.approx(0.2 + 2 / log.step, abs=0.6 * 10**-digits)
    assert log.column("step_s") == pytest.approx([0.5] * 59)


@pytest.mark.parametrize("digits", [1, 2, 4, 5])
def test_no_part_of_a_number_with_a_comma_of_decimals_is_one_in_a_text(digits, tmp_path):
    losses = [f"{0.2 + 2 / n:.{digits}f}".replace(".", ",") for n in range(1, 60)]
    (tmp_path / "x").write_text("\n".join(f"step {n} loss {x}" for n, x in enumerate(losses, 1)))
    with pytest.raises(Unreadable, match=r"59 lines are like 'step 1 loss 2,2.*--pattern"):
        read_logs([str(tmp_path / "x")])


@pytest.mark.parametrize("text", ["step {n:,} loss 1.5", "step {n:,} loss 2 gpus [0,12]"])
def test_thousands_beside_points_are_read_as_such(text, tmp_path):
    steps = range(100, 9000, 100)
    (tmp_path / "x").write_text("\n".join(text.format(n=n) for n in steps))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.step.tolist() == list(steps)


@pytest.mark.parametrize("name", ["x.log", "x.csv"])
def test_a_loss_in_percent_is_a_share(name, tmp_path):
    form = "step {n} loss {x:.1f}%" if name == "x.log" else "{n},{x:.1f}%"
    lines = ["step,loss"] if name == "x.csv" else []
    lines += [form.format(n=n, x=100 * (0.2 + 2 / n)) for n in range(1, 60)]
    (tmp_path / name).write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / name)])
    assert log.column("loss") == pytest.approx(0.2 + 2 / log.step, abs=1e-3)


def same(a: list[RunLog], b: list[RunLog]) -> bool:
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
@pytest.mark.parametrize("noise", ["chatter", "colours"])
def test_the_size_of_the_pieces_changes_nothing(name, noise, tmp_path, monkeypatch):
    lines = re.split(rb"(?<=[\r\n])", getattr(write, name)(synthetic_log(n=300, every=1)))
    planted = {
        "chatter": [b"%s\n%s" % (b"=1" * (i % 37), x) for i, x in enumerate(lines)],
        "colours": [b"\x1b[1m\x1b[%dm%s" % (31 + i % 7, x) for i, x in enumerate(lines)],
    }[noise]
    (tmp_path / "x").write_bytes(b"".join(planted) + b"\nCANCELLED AT 2026 DUE TO TIME LIMIT\n")
    whole = read_logs([str(tmp_path / "x")])
    assert sum(map(len, whole)) >= 100
    for size in (777, 5000):
        monkeypatch.setattr("analysis.read.text.pieces.PIECE", size)
        assert same(whole, read_logs([str(tmp_path / "x")]))


def test_a_colour_within_a_number_is_seen_through(tmp_path):
    lines = [f"(step={i:07d}) Train Loss: 0.\x1b[1m{i:04d}\x1b[0m" for i in range(100)]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.column("loss").tolist() == [float(f"0.{i:04d}") for i in range(100)]


def test_a_name_with_a_digit_is_never_taken_for_another(tmp_path):
    lines = [str({"step": i, "loss": 0.5, f"loss_{i % 3}": float(i)}) for i in range(300)]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    for name in range(3):
        column = log.column(f"loss_{name}")
        assert set(column[~np.isnan(column)] % 3) <= {name}


def test_a_comma_that_may_be_of_thousands_leaves_the_loss_uncertain(tmp_path):
    (tmp_path / "x").write_text("\n".join(f"step {n} loss {9 - n / 9:.3f}".replace(".", ",")
                                          for n in range(1, 60)))  # fmt: skip
    [log] = read_logs([str(tmp_path / "x")])
    assert "thousands or of decimals" in log.uncertain["loss"]
