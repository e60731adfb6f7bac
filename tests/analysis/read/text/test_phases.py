"""The lines and values of evaluations in a text log are told from the training's."""

import pytest

from analysis.measure.rate import measure_rate
from tests.analysis.foreign_logs import logs_of


@pytest.mark.parametrize(
    ("first", "second"),
    [("Train Loss", "Val Loss"), ("train_loss", "VALID_LOSS"), ("Training loss", "Dev loss"),
     ("loss", "validation loss"), ("Loss", "Test Loss")],
)  # fmt: skip
def test_a_loss_of_an_evaluation_in_any_case_is_no_training_loss(first, second, tmp_path):
    rows = [f"Epoch {n}/30 - {first}: {9 / n:.4f}, {second}: {8 / n:.4f}" for n in range(1, 31)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.axis == "epoch"
    assert log.last("loss") == pytest.approx(0.3, abs=1e-3)
    found = log.evaluations[-1]
    assert [v for name, v in found.items() if "loss" in name] == [pytest.approx(8 / 30, abs=1e-3)]


def test_a_phase_before_names_is_that_of_the_values_after_it(tmp_path):
    rows = [f"epoch {n} | Train: loss={9 / n:.4f} | Val: loss={8 / n:.4f}" for n in range(1, 20)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.last("loss") == pytest.approx(9 / 19, abs=1e-3)
    assert log.evaluations[-1]["val_loss"] == pytest.approx(8 / 19, abs=1e-3)


def test_a_phase_with_a_count_of_its_own_is_that_of_the_values_after_it(tmp_path):
    bars = "".join(f"{n}0%|####| {n}/10 [00:{n:02d}<00:01, 1.0it/s]\n" for n in range(1, 11))
    rows = [f"{bars}[ Valid | {n:03d}/020 ] loss = {9 / n:.4f}, acc = 0.5" for n in range(1, 20)]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.last("loss"), log.evaluations[-1]["valid_loss"]) == (None, pytest.approx(0.4737))


def test_an_evaluation_in_every_interval_leaves_training_untimed(tmp_path):
    rows = []
    for n in range(1, 30):
        rows.append(f"2024-01-01 00:{n:02d}:00 step {100 * n} loss {1 / n:.4f}")
        rows.append(f"2024-01-01 00:{n:02d}:36 validation loss {2 / n:.4f}")
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.facts["always_evaluates"]
    assert len(log.evaluations) == 29
    rate = measure_rate(log, clock="wall").rate
    assert rate is None or rate.low is None


def test_a_loss_after_the_result_of_an_evaluation_is_its_own(tmp_path):
    rows = [
        f"epoch: {n}, acc: 0.9, loss: {3 / n:.4f}\nepoch: {n}, eval_acc: 0.8, loss: {4 / n:.4f}"
        for n in range(1, 31)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.last("loss"), log.evaluations[-1]["val_loss"]) == (0.1, 0.1333)
    [alone] = logs_of(tmp_path / "x", "\n".join(row.partition("\n")[2] for row in rows))
    assert "may be that of the evaluation" in alone.uncertain["loss"]
    lines = [row.replace("\nepoch", " | epoch") for row in rows]
    [both] = logs_of(tmp_path / "x", "\n".join(lines))
    assert (both.last("loss"), both.evaluations[-1]["val_loss"]) == (0.1, 0.1333)


def test_an_epoch_named_for_an_evaluation_begins_none(tmp_path):
    rows = []
    for n in range(1, 31):
        rows += [f"step {step} loss {3 / n:.4f}" for step in range(10 * n - 9, 10 * n + 1)]
        rows += [f"Validation epoch {n}", f"step {10 * n} loss {4 / n:.4f}"]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.step[-1] == 300
    assert "the last step is printed more than once" in log.uncertain["loss"]


def test_of_lines_of_one_kind_those_with_a_result_of_an_evaluation_are_its_own(tmp_path):
    rows = [
        f"step {n} loss {3 / n:.4f}" + f"\nstep {n} val_acc 0.9 loss {4 / n:.4f}" * (n % 10 == 0)
        for n in range(1, 31)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert (log.last("loss"), log.evaluations[-1]["val_loss"]) == (0.1, 0.1333)


def test_a_distance_in_a_line_of_its_own_is_an_evaluation(tmp_path):
    rows = [
        f"step {n} loss {3 / n:.4f}" + f"\nstep {n} FID {90 / n:.2f}" * (n % 10 == 0)
        for n in range(1, 31)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    assert log.last("loss") == 0.1
    assert [one["fid"] for one in log.evaluations] == [9, 4.5, 3]


def test_lines_below_a_named_evaluation_that_count_as_in_training_leave_a_doubt(tmp_path):
    lines = []
    for epoch in (1, 2, 3):
        for head, last in ((f"Epoch {epoch}", 100), ("Validation", 30)):
            rows = [f"batch {n} | loss {9 / (epoch + n):.4f}" for n in range(10, last + 1, 10)]
            lines += [head, *rows]
    for log in logs_of(tmp_path / "x", "\n".join(lines)):
        assert "may be that of evaluations" in log.uncertain["loss"]
