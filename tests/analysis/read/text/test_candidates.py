"""A text log is read by what explains it: names with their numbers, epochs, evaluations, clocks."""

import re

import numpy as np
import pytest

from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs
from configs.errors import Unreadable
from tests.analysis.foreign_logs import logs_of


def test_seconds_of_an_epoch_are_no_time_of_day(tmp_path):
    rows = [f"Epoch: {n}, loss: {9 / n:.4f}, time: {16 + n % 3 / 10}" for n in range(1, 41)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    rate = measure_rate(log, clock=None).rate
    assert rate is not None
    assert rate.value == pytest.approx(1 / 16.1, rel=0.01)
    assert rate.low is None  # no unit is printed
    assert "no unit" in log.uncertain["printed"]


def test_several_losses_have_two_readings_and_are_doubtful(tmp_path):
    rows = [f"[iter {n}] g_loss: {3 / n:.4f} d_loss: {2 / n:.4f}" for n in range(1, 40)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.last("loss") == pytest.approx(3 / 39, abs=1e-3)
    assert "two readings" in log.uncertain["loss"]


def test_an_error_beside_a_loss_of_another_name_is_a_second_reading(tmp_path):
    rows = [f"Epoch {n} | Train MSE: {3 / n:.4f} | Gate Loss: {2 / n:.4f}" for n in range(1, 9)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert "two readings: Train MSE, Gate Loss" in log.uncertain["loss"]


def test_steps_that_are_printed_twice_with_other_losses_leave_the_loss_uncertain(tmp_path):
    rows = [f"epoch: {n}, loss: {3 / n:.4f}\nepoch: {n}, loss: {4 / n:.4f}" for n in range(1, 9)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.axis, int(log.step[-1])) == ("epoch", 8)
    assert "printed more than once" in log.uncertain["loss"]


def test_a_time_of_one_step_or_of_ten_has_two_readings_and_no_rate(tmp_path):
    rows = [f"iter {n} loss {5 / n:.4f} took {1 + n % 3 / 9:.2f}s" for n in range(10, 900, 10)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert measure_rate(log, clock=None).rate is None
    assert "may be that of a step or of 10 steps" in log.uncertain["time"]


def test_tokens_per_second_of_unknown_devices_have_no_interval(tmp_path):
    rows = [f"step {n} loss {5 / n:.4f} {900 + n % 7} tok/s" for n in range(1, 90)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    rate = measure_rate(log, clock=None).rate
    assert rate is None or rate.low is None


def test_losses_that_are_not_finite_are_counted(tmp_path):
    rows = [f"step {n} loss {'nan' if n % 2 else 1 / n}" for n in range(1, 121)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert any("60 of 120 losses are not finite" in remark for remark in log.remarks)


def test_utf16_is_read(tmp_path):
    text = "\r\n".join(f"step {n} loss {1 / n:.4f}" for n in range(1, 40))
    (tmp_path / "x").write_bytes(text.encode("utf-16"))
    [log] = read_logs([str(tmp_path / "x")])
    assert len(log) == 39


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_sessions_of_a_table_are_runs_and_its_resumes_attempts(kind, tmp_path):
    steps = [*range(1, 31), *range(21, 51), *range(1, 21)]
    rows = [(step, 1 / step + number / 1e6) for number, step in enumerate(steps)]
    if kind == "csv":
        text = "step,loss\n" + "\n".join(f"{step},{loss}" for step, loss in rows)
    else:
        text = "\n".join(f'{{"step": {step}, "loss": {loss}}}' for step, loss in rows)
    first, second = logs_of(tmp_path / f"x.{kind}", text)
    assert (first.attempts, int(first.step[-1]), len(first)) == (2, 50, 50)
    assert first.attempt.tolist() == [1] * 20 + [2] * 30
    assert len(second) == 20
    assert any("2 runs in a file" in remark for remark in first.remarks)


def test_steps_that_begin_again_without_end_are_refused(tmp_path):
    text = "step,loss\n" + "\n".join(f"{n % 5},1.5" for n in range(20_000))
    with pytest.raises(Unreadable, match=re.escape("too often for runs")):
        logs_of(tmp_path / "x.csv", text)


def test_a_loss_in_a_line_of_details_is_not_that_of_the_step(tmp_path):
    rows = [
        f"Iteration {n}, loss = {9 / (n + 1):.4f}\n  output #0: loss = 1.5\n"
        f"Iteration {n}, lr = 0.1\n  output #1: loss = 1.6"
        for n in range(0, 4000, 500)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.last("loss") == pytest.approx(9 / 3501, abs=1e-4)


TABLES = {
    "blanks": ("epoch     train_loss  valid_loss  time", "{n}         {x:.6f}    {y:.6f}    00:14"),
    "bars": ("| Epoch | Train Loss | Val Loss | acc1 |\n|---|---|---|---|",
             "| {n} | {x:.4f} | {y:.4f} | 0.5 |"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_line_of_names_names_the_columns_below(name, tmp_path):
    header, row = TABLES[name]
    rows = [row.format(n=n, x=3 / n, y=4 / n) for n in range(1, 20)]
    [log] = logs_of(tmp_path / "x", "\n".join(["training", header, *rows]))
    assert (log.axis, int(log.step[-1])) == ("epoch", 19)
    assert log.last("loss") == pytest.approx(3 / 19, abs=1e-4)
    [value] = [v for k, v in log.evaluations[-1].items() if "loss" in k]
    assert value == pytest.approx(4 / 19, abs=1e-4)


def test_a_few_lines_of_the_training_are_found_among_many_others(tmp_path):
    noise = [f"part{n:02d}x gives {n}.5 of {m}" for n in range(60) for m in range(3)]
    noise = [line.replace("x", chr(97 + n % 26)) for n, line in enumerate(noise)]
    rows = [f"iter: {n} total_loss: {5 - n / 100:.3f}" for n in (19, 39)]
    [log] = logs_of(tmp_path / "x", "\n".join([*noise, *rows]))
    assert log.step.tolist() == [19, 39]


def test_a_loss_without_a_count_is_shown_and_doubted(tmp_path):
    rows = [f"train loss = {3 / n:.4f}" for n in range(1, 30)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.axis, log.last("loss")) == ("unit", pytest.approx(3 / 29, abs=1e-4))
    assert "neither a step nor an epoch" in log.uncertain["loss"]


def test_the_first_of_several_losses_in_a_table_is_shown_and_doubted(tmp_path):
    rows = [f"{n},{3 / n:.4f},{2 / n:.4f},{4 / n:.4f}" for n in range(1, 30)]
    head = "epoch,train/box_loss,train/cls_loss,val/box_loss"
    [log] = logs_of(tmp_path / "x", "\n".join([head, *rows]))
    assert log.last("loss") == pytest.approx(3 / 29, abs=1e-4)
    assert "two readings" in log.uncertain["loss"]


@pytest.mark.parametrize(
    "line",
    ["轮次 {n}/30, 训练损失: {x:.4f}, 验证损失: {y:.4f}",
     "第 {n} 轮 损失\uff1a{x:.4f}\uff0c验证损失\uff1a{y:.4f}",
     "エポック {n}/30 損失: {x:.4f} 検証損失: {y:.4f}",
     "Epoche {n}/30 - Verlust: {x:.4f} - val loss: {y:.4f}",
     "Époque {n}/30 - perte: {x:.4f} - val loss: {y:.4f}",
     "Época {n} - Pérdida: {x:.4f} - val loss: {y:.4f}"],
)  # fmt: skip
def test_names_of_some_other_languages_are_known(line, tmp_path):
    rows = [line.format(n=n, x=3 / n, y=4 / n) for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.axis, log.step[-1], log.last("loss")) == ("epoch", 30, pytest.approx(0.1))
    assert log.evaluations[-1]["valid_loss" if "val " not in line else "val_loss"] == 0.1333


def test_a_pattern_matches_the_words_of_the_text(tmp_path):
    rows = [f"甲 {n} 损失 {3 / n:.4f}" for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows), pattern=r"甲 (?P<step>\d+) 损失 (?P<loss>\S+)")
    assert log.last("loss") == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("line", "axis"),
    [("{n},{x:.4f},0.001", "unit"), ("({n}, {x:.4f}, {y:.4f})", "unit"), ("{x:.6f}", "unit"),
     ("  {n}/99  9.24G  {x:.4f}  640", "epoch")],
)  # fmt: skip
def test_a_falling_number_without_a_name_may_be_a_loss(line, axis, tmp_path):
    rows = [line.format(n=n, x=3 / n, y=4 / n) for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.axis, len(log), log.last("loss")) == (axis, 30, pytest.approx(0.1))
    assert log.uncertain["loss"]


def test_a_rate_in_lines_of_its_own_is_that_of_the_records(tmp_path):
    rows = [f"loss = {3 / n:.4f}, step = {100 * n}\nglobal_step/sec: 9.99" for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.last("steps_per_s") == 9.99


def test_a_clock_of_one_value_is_no_time_since_the_start(tmp_path):
    rows = [f"epoch {n} loss {3 / n:.4f} took 12.0 s" for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.last("step_s") == 12


def test_the_summary_of_a_training_is_read_if_there_is_nothing_else(tmp_path):
    text = (
        "{'eval_loss': 0.5, 'epoch': 3.0}\n{'train_runtime': 9, 'train_loss': 0.95, 'epoch': 3.0}"
    )
    [log] = logs_of(tmp_path / "x", text)
    assert (log.axis, log.step[-1], log.last("loss")) == ("epoch", 3, 0.95)
    assert log.uncertain["loss"] == "may be the mean of the whole training"


def test_a_first_line_that_comes_again_may_begin_a_session(tmp_path):
    rows = [f"step {n} loss {3 / n:.4f}" for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(["Using a GPU", *rows[:9], "Using a GPU", *rows[9:]]))
    assert any("as many sessions" in remark for remark in log.remarks)


@pytest.mark.parametrize(
    "line",
    ["Step, {n}, Loss, {x:.4f}, PSNR, 9.4", "[Step] {n} [Loss] {x:.4f}",
     "step {n} loss {x:.4f} steps/sec 2.5", "step {n} loss {x:.4f} 2.5 steps/sec 80 img/s",
     "step {n} eta = 12m{n:02d}s loss {x:.4f}"],
)  # fmt: skip
def test_names_are_found_in_every_form(line, tmp_path):
    rows = [line.format(n=n, x=3 / n) for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.step[-1], log.last("loss")) == (30, pytest.approx(0.1))
    assert log.last("steps_per_s") == (2.5 if "sec" in line else None)


def test_numbers_of_unknown_names_in_a_file_of_losses_are_losses(tmp_path):
    rows = [
        f"(epoch: 1, iters: {n}, time: 0.05, data: 0.3) G_GAN: {3 / n:.4f} D: 0.5"
        for n in range(1, 31)
    ]
    [log] = logs_of(tmp_path / "loss_log.txt", "\n".join(rows))
    assert log.last("loss") == pytest.approx(0.1)
    assert "G_GAN loss, D loss" in log.uncertain["loss"]
    [log] = logs_of(tmp_path / "log.txt", "\n".join(rows))
    assert log.last("loss") is None


def test_lines_of_another_kind_that_stand_apart_leave_a_doubt(tmp_path):
    first = [f"-- batch: {n} --\nmean loss: {3 / n:.4f}" for n in range(1, 31)]
    then = [f"[TRAIN] Epoch 6 | batch {n}/99\n[TRAIN] mean loss: {2 / n:.4f}" for n in range(1, 9)]
    [log] = logs_of(tmp_path / "x", "\n".join([*first, *then]))
    assert any("may be another run" in remark for remark in log.remarks)


def test_a_first_line_that_ends_in_a_tab_is_no_header(tmp_path):
    rows = [
        "error vs. #iterations\t",
        " 7.9505e+04\t",
        *(f"Iter {n}, Loss = {3 / n}" for n in range(1, 31)),
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.step[-1], log.last("loss")) == (30, 0.1)


def test_a_record_that_is_printed_again_without_its_time_keeps_it(tmp_path):
    rows = [
        f"2025-10-28 20:{n // 6:02d}:{n % 6}0,000 INFO step {n} loss {5 / n:.4f}\n"
        f"step {n} loss {5 / n:.4f}"
        for n in range(1, 300)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (len(log), log.attempts) == (299, 1)
    assert np.nanmedian(np.diff(log.column("time"))) == pytest.approx(10.0)
