"""Counts of a text: steps, epochs, batches and what counts none of them."""

import numpy as np
import pytest

from configs.errors import Unreadable
from tests.analysis.foreign_logs import logs_of


def test_a_number_in_the_prefix_of_a_logger_is_no_step(tmp_path):
    rows = [
        f"2024-01-01 00:{n:02d}:00 | INFO | x.trainer:after_iter:246 - epoch: {e}/3, iter: {i}/40, "
        f"total_loss: {5 - n / 20:.3f}"
        for n, (e, i) in enumerate((e, i) for e in (1, 2, 3) for i in range(10, 41, 10))
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.step.tolist() == list(range(10, 121, 10))
    assert log.attempts == 1


@pytest.mark.parametrize(
    "line",
    ["Epoch[{e}] Batch [{i}] loss={x}", "Epoch: [{e}], step: [{i}], loss: {x}",
     "[Epoch {e} Batch {i}/50] loss {x}", "| epoch {e} | {i}/50 batches | loss {x}",
     "epoch: {e}, batch_id: {i}, loss: {x}"],
)  # fmt: skip
def test_epochs_before_a_step_are_one_run_in_every_form(line, tmp_path):
    rows = [line.format(e=e, i=i, x=3 / (50 * e + i)) for e in range(9) for i in range(1, 51)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.step.tolist() == list(range(1, 451))


def test_a_number_before_the_word_epoch_counts_epochs(tmp_path):
    lines = [
        f"Begin training {n} epoch ..50%..[done][{130 - n % 7:.1f} secnds]" for n in range(1, 60)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(lines))
    assert (log.axis, int(log.step[-1]), log.last("loss")) == ("epoch", 59, None)


def test_an_epoch_in_a_line_of_its_own_counts_for_the_lines_below(tmp_path):
    rows = [
        f"Epoch {e}/5\n" + "\n".join(f"step {i}/20 - loss: {1 / (e + i):.4f}" for i in range(1, 21))
        for e in range(1, 6)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.step[-1] == 100
    assert log.attempts == 1


@pytest.mark.parametrize("row", ["[E{e}] step {i} loss {x:.4f}", "step {i} loss {x:.4f}"])
def test_an_epoch_that_is_named_at_its_end_is_that_of_the_lines_above(row, tmp_path):
    rows = []
    for e in range(1, 5):
        rows += [row.format(e=e, i=i, x=3 / (e + i)) for i in range(0, 100, 10)]
        rows += [f"Epoch {e} avg {2 / e:.3f}"]
    [log] = logs_of(tmp_path / "x", "\n".join(rows[:-1]))
    assert log.step.tolist() == list(range(0, 400, 10))


def test_steps_of_another_total_between_epochs_are_not_those_of_the_training(tmp_path):
    rows = []
    for e in range(1, 6):
        rows += [f"Epoch {e}/5", *(f"step {i}/20 - loss: {1 / e:.4f}" for i in range(5, 21, 5))]
        rows += [f"step {i}/4 - loss: {2 / e:.4f}" for i in range(1, 5)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.step[-1], log.last("loss")) == (100, pytest.approx(0.2))
    assert log.evaluations[-1]["val_loss"] == pytest.approx(0.4)
    assert any("lines that count to 4 may be of evaluations" in remark for remark in log.remarks)


def test_a_number_of_steps_is_no_step(tmp_path):
    rows = [f"number of train batches 31250\n[{n}] loss {3 / n:.4f}" for n in (1, 2)]
    with pytest.raises(Unreadable):
        logs_of(tmp_path / "x", "\n".join(rows))


def test_a_number_may_stand_right_after_a_word_that_counts(tmp_path):
    rows = [
        f"TRAIN in epoch{e}, step{i}, loss = {5 - e:.2f}\nTEST in epoch{e}, loss = {6 - e:.2f}"
        for e in range(4)
        for i in range(0, 60, 20)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (int(log.step[-1]), log.last("loss")) == (220, 2.0)
    assert log.evaluations[-1]["test_loss"] == 3.0


def test_steps_that_fall_only_where_the_epoch_rises_are_of_one_run(tmp_path):
    places = [(n // 24 + 1, n % 24 + 1) for n in range(99, 9600, 100)]
    rows = [f"(epoch: {e}, iters: {i}, time: 0.5) G_GAN: {9 / e:.3f}" for e, i in places]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.step.tolist() == list(range(100, 9601, 100))


def test_a_number_without_a_name_counts_if_it_rises_by_a_constant(tmp_path):
    rows = [f"{n} val {9 / (n + 1):.4f}\n{n} train {8 / (n + 1):.4f}" for n in range(0, 9000, 10)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.axis, int(log.step[-1])) == ("step", 8990)
    assert log.last("loss") == pytest.approx(8 / 8991, abs=1e-4)
    assert log.evaluations[-1]["val_loss"] == pytest.approx(9 / 8991, abs=1e-4)
    assert "may be a loss" in log.uncertain["loss"]


@pytest.mark.parametrize("column", ["frame", "Episode", "total_timesteps"])
def test_frames_and_episodes_are_counted_as_such(column, tmp_path):
    rows = [f"{500 * n},{n / 7:.3f}" for n in range(1, 30)]
    [log] = logs_of(tmp_path / "x", "\n".join([f"{column},reward", *rows]))
    assert log.axis in column.lower()
    assert int(log.step[-1]) == 14_500


def test_the_count_of_timm_is_that_of_the_batches(tmp_path):
    rows = [
        f"Train: {e} [{b:4d}/200 ({b / 2:.0f}%)]  Loss: {5 - e - b / 200:.3f} (5.1)  Time: 0.350s"
        for e in range(4)
        for b in (0, 50, 100, 150, 199)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.step[-1] == 799


@pytest.mark.parametrize(
    ("line", "batch"),
    [("epoch {e} batch {i}/40 step {n} loss {x}", None),
     ("step {n} (epoch {e}, batch {i} of 40) loss {x}", None),
     ("step {n} batch {i}/40 batch_size 64 loss {x}", 64),
     ("step {n} batch 64 loss {x}", 64),
     ('{{"epoch": {e}, "batch": {i}, "step": {n}, "loss": {x}}}', None)],
)  # fmt: skip
def test_the_number_of_a_batch_is_no_size_of_it(line, batch, tmp_path):
    rows = [line.format(e=n // 40, i=n % 40, n=n, x=3 / n) for n in range(4, 400, 4)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.global_batch == batch
    assert np.isnan(log.column("batch")).all() == (batch is None)


def test_a_count_that_other_lines_call_epochs_is_one(tmp_path):
    rows = [f"Train: [{n}/30] loss {3 / (n + 1):.4f}\nEPOCH {n} takes 0:18" for n in range(30)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.axis, log.step[-1]) == ("epoch", 29)
