"""Logs of other trainers are found by content, read whole, and every number keeps its line."""

import datetime

import numpy as np
import pytest

from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs
from configs.errors import Unreadable
from tests.analysis import foreign_logs as write
from tests.analysis.foreign_logs import FORMATS, synthetic_log


def read(path):
    [log] = read_logs([str(path)])
    return log


@pytest.mark.parametrize("name", FORMATS)
def test_steps_and_losses_are_those_planted(name, tmp_path):
    planted = synthetic_log()
    (tmp_path / "x").write_bytes(FORMATS[name][0](planted))
    log = read(tmp_path / "x")
    if not name.startswith("HF console"):
        assert log.step.tolist() == planted.step.tolist()
    assert log.column("loss") == pytest.approx(planted.loss, rel=1e-3)


@pytest.mark.parametrize("name", [name for name, (_, clock) in FORMATS.items() if clock])
def test_the_rate_is_the_planted_one_on_a_named_clock(name, tmp_path):
    (tmp_path / "x").write_bytes(FORMATS[name][0](synthetic_log()))
    found = measure_rate(read(tmp_path / "x"), clock=None)
    assert found.clock == FORMATS[name][1]
    assert found.steps_per_s.value == pytest.approx(0.5, rel=0.005)
    assert found.steps_per_s.low <= 0.5 * 1.002
    assert found.steps_per_s.high >= 0.5 * 0.998


@pytest.mark.parametrize("name", ["DiT", "torchtitan", "nanoGPT", "Megatron", "MLPerf", "csv"])
def test_every_number_keeps_its_line(name, tmp_path):
    planted = synthetic_log(n=20)
    (tmp_path / "x").write_bytes(FORMATS[name][0](planted))
    lines = (tmp_path / "x").read_text().split("\n")
    log = read(tmp_path / "x")
    assert all(str(step) in lines[line - 1] for step, line in zip(log.step, log.line, strict=True))


def test_composers_batches_are_counted_through_its_epochs(tmp_path):
    planted = synthetic_log(n=40, every=1)
    (tmp_path / "x").write_bytes(b"config:\n  a: 1\n" + write.composer(planted, epoch=15))
    log = read(tmp_path / "x")
    assert log.step.tolist() == planted.step.tolist()
    assert log.line.tolist() == [5 + 3 * row for row in range(40)]


@pytest.mark.parametrize("name", ["torchtitan", "HF console", "MLPerf", "nanoGPT", "DiT"])
@pytest.mark.parametrize(
    "prefix", ["[rank{}]:", "[default{}]:", "{}: ", "[RANK {}] 2024-01-01 00:00:{:02d} "]
)
def test_of_ranks_that_print_the_same_one_is_read(name, prefix, tmp_path):
    lines = FORMATS[name][0](synthetic_log(n=40)).replace(b"0: :::", b":::").split(b"\n")
    planted = [prefix.format(r, r).encode() + line for line in lines for r in (1, 0, 2)]
    (tmp_path / "x").write_bytes(b"\n".join(planted))
    log = read(tmp_path / "x")
    assert log.column("loss") == pytest.approx(synthetic_log(n=40).loss, rel=1e-3)
    assert any("3 ranks print; rank 0 is read" in remark for remark in log.remarks)


def test_a_stamp_before_a_printed_dict_is_its_time(tmp_path):
    lines = [f"2024-01-01 00:{i:02d}:00 {{'loss': 1.5, 'step': {i}}}" for i in range(50)]
    (tmp_path / "x").write_text("\n".join(lines))
    assert measure_rate(read(tmp_path / "x"), clock="wall").steps_per_s.value == pytest.approx(
        1 / 60, rel=0.01
    )


def test_a_bar_of_a_download_is_not_the_training(tmp_path):
    download = b"model: 50%|#####     | 5/900 [00:01<00:02, 3.0it/s]\r" * 3
    (tmp_path / "x").write_bytes(download + write.ai_toolkit(synthetic_log(n=50)))
    assert len(read(tmp_path / "x")) == 50


def test_lines_out_of_order_are_put_in_order(tmp_path):
    lines = write.titan(synthetic_log(n=30)).split(b"\n")
    lines[10], lines[11] = lines[11], lines[10]
    (tmp_path / "x").write_bytes(b"\n".join(lines))
    log = read(tmp_path / "x")
    assert log.step.tolist() == synthetic_log(n=30).step.tolist()
    assert log.attempts == 1


def test_a_step_that_falls_is_a_new_attempt_whose_steps_stand(tmp_path):
    first = write.dit(synthetic_log(n=30)).split(b"\n")
    later = synthetic_log(n=40)
    again = write.dit(write.SyntheticLog(
        step=later.step[20:], seconds=later.seconds[20:] + 9999, loss=later.loss[20:] + 1
    )).split(b"\n")  # fmt: skip
    (tmp_path / "x").write_bytes(b"\n".join(first + again))
    log = read(tmp_path / "x")
    assert log.attempts == 2
    assert log.step.tolist() == later.step.tolist()
    assert log.attempt.tolist() == [1] * 20 + [2] * 20
    assert (log.column("loss")[20:] > 1).all()


def test_a_restart_from_the_beginning_is_another_run(tmp_path):
    again = write.SyntheticLog(
        step=synthetic_log(n=20).step,
        seconds=synthetic_log(n=20).seconds + 9999,
        loss=synthetic_log(n=20).loss,
    )
    (tmp_path / "x").write_bytes(write.dit(synthetic_log(n=30)) + b"\n" + write.dit(again))
    assert [(log.name, len(log)) for log in read_logs([str(tmp_path / "x")])] == [
        ("x#1", 30),
        ("x#2", 20),
    ]


def test_a_truncated_last_line_costs_only_itself(tmp_path):
    (tmp_path / "x").write_bytes(write.dit(synthetic_log(n=30))[:-60])
    assert len(read(tmp_path / "x")) == 29


def test_the_loss_over_bars_is_aligned_with_a_bar(tmp_path):
    planted = synthetic_log(n=40)
    bars = write.kohya(planted).split(b"\r")
    dicts = write.trainer_console(planted).split(b"\n")
    pairs = [b"\n".join(pair) for pair in zip(bars, dicts, strict=True)]
    (tmp_path / "x").write_bytes(b"\n".join(pairs).replace(b"avr_loss", b"x"))
    assert read(tmp_path / "x").step.tolist() == planted.step.tolist()


def test_a_file_that_is_no_log_is_misuse(tmp_path):
    (tmp_path / "x").write_bytes(bytes(range(256)) * 50)
    with pytest.raises(Unreadable, match="no run in it"):
        read_logs([str(tmp_path / "x")])


@pytest.mark.parametrize(
    ("head", "seconds"),
    [
        ("[2023-05-16 08:53:04] ", 1684227184.0),
        ("0: [rank0]:2024-11-27 14:29:40,378 - root - INFO - ", 1732717780.378),
        ("2024-11-27T14:29:40.378123 ", 1732717780.378123),
        ("11/27/2024 14:29:40 - INFO - ", 1732717780.0),
        ("2024-13-27 14:29:40 ", None),
        ("2024-11-27 25:29:40 ", None),
        ("", None),
    ],
)
def test_time_stamps_are_read_alike_alone_and_among_others(head, seconds, tmp_path):
    lines = [f"{head}step: {step}  loss: 1.5" for step in range(1, 20)]
    lines.insert(5, "2024-01-01 00:00:00 another line")
    lines[9] = "longer " + lines[9]
    (tmp_path / "x").write_text("\n".join(lines))
    times = read(tmp_path / "x").column("time")
    assert len(times) == 19
    if seconds is None:
        assert np.isnan(times).all()
    else:
        assert times == pytest.approx(seconds, abs=1e-6)


def test_seconds_since_a_start_that_fall_at_a_resume_are_a_clock(tmp_path):
    """ultralytics: `time` starts again when training is resumed."""
    seconds = [100.0, 200.0, *(150.0 + 110 * n for n in range(40))]
    rows = [f"{n},{s},{1 / n}" for n, s in enumerate(seconds, start=1)]
    (tmp_path / "results.csv").write_text("epoch,time,train/loss\n" + "\n".join(rows))
    [log] = read_logs([str(tmp_path / "results.csv")])
    rate = measure_rate(log, clock=None)
    assert (rate.clock, rate.unit) == ("wall", "epoch")
    assert rate.rate.value == pytest.approx(1 / 110, rel=0.01)


@pytest.mark.parametrize("rise", [1.0001, 1.02])
def test_times_that_only_creep_up_are_no_clock(rise, tmp_path):
    rows = [f"{n},{0.25 * rise**n},{1 / n}" for n in range(1, 20)]
    (tmp_path / "x.csv").write_text("step,time,loss\n" + "\n".join(rows))
    [log] = read_logs([str(tmp_path / "x.csv")])
    assert measure_rate(log, clock=None).rate is None


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ("time", lambda n: f"{1.77e12 + 10_000 * n:.0f}"),
        ("time", lambda n: f"{1.77e15 + 1e7 * n:.0f}"),
        ("elapsed_ms", lambda n: f"{10_000 * n}"),
        ("step_time_ms", lambda n: "500"),
        ("it/s", lambda n: "2.0"),
    ],
)
def test_a_time_of_a_table_has_the_unit_of_its_name_or_size(column, shown, tmp_path):
    rows = [f"{20 * n},{shown(n)},{1 / (n + 1)}" for n in range(170)]
    (tmp_path / "x.csv").write_text(f"step,{column},loss\n" + "\n".join(rows))
    [log] = read_logs([str(tmp_path / "x.csv")])
    assert measure_rate(log, clock=None).rate.value == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize(
    "form", ["%m/%d/%Y %I:%M:%S %p", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S"]
)
def test_the_order_of_a_date_is_that_in_which_a_log_passes_midnight(form, tmp_path):
    begun = datetime.datetime(2026, 5, 1, 23, 50, tzinfo=datetime.UTC)
    rows = [
        f"{begun + datetime.timedelta(seconds=10 * n):{form}} - step {20 * n} loss {1 / (n + 1)}"
        for n in range(120)
    ]
    (tmp_path / "x").write_text("\n".join(rows))
    times = read(tmp_path / "x").column("time")
    assert np.diff(times) == pytest.approx(10.0)


def test_text_with_tabs_is_no_table(tmp_path):
    (tmp_path / "x.log").write_text("2025-12-07 17:30:34\thost:0\tINFO\tprepared\nstep 1\n")
    with pytest.raises(Unreadable, match="text of an unknown format"):
        read_logs([str(tmp_path / "x.log")])
