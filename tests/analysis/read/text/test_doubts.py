"""What a text leaves open is a doubt, and what only looks like a step, a loss or a time is none."""

import datetime
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog

BEGUN = datetime.datetime(2026, 3, 1, 10, 0, 0, tzinfo=datetime.UTC)


def logs_of(path: Path, lines: list[str]) -> list[RunLog]:
    path.write_text("\n".join(lines))
    return read_logs([str(path)])


def at(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return f"{BEGUN + datetime.timedelta(seconds=seconds):{form}}"


def loss(step: int) -> float:
    return 0.2 + 2 / (1 + step / 100)


@pytest.mark.parametrize("micro", ["micro {m}", "accum {m}/4"])
def test_micro_steps_are_no_steps(micro, tmp_path):
    lines = [
        f"{at(s / 2)} step {s} {micro.format(m=m)} loss {loss(s) + m / 100:.4f}"
        for s in range(1, 200)
        for m in range(1, 5)
    ]
    [log] = logs_of(tmp_path / "x", lines)
    assert (int(log.step[-1]), log.attempts) == (199, 1)
    assert "printed more than once" in log.uncertain["loss"]


def test_a_global_step_goes_before_a_step_that_begins_again(tmp_path):
    rows = [f"{s // 400},{s % 400},{s},{loss(s):.4f}" for s in range(10, 2001, 10)]
    [log] = logs_of(tmp_path / "x.csv", ["epoch,step,global_step,loss", *rows])
    assert log.step.tolist() == list(range(10, 2001, 10))
    assert "step" not in log.uncertain


@pytest.mark.parametrize(
    ("every", "length"), [(100, 195), (20, 119)], ids=["one an epoch", "not a multiple"]
)
def test_an_epoch_whose_length_is_not_printed_leaves_the_steps_in_doubt(every, length, tmp_path):
    lines = [
        f"{at((e * length + s) / 2)} epoch {e + 1} step {s} loss {loss(e * length + s):.4f}"
        for e in range(20)
        for s in range(every, length, every)
    ]
    [log] = logs_of(tmp_path / "x", lines)
    assert "length of an epoch is not known" in log.uncertain["step"]
    assert log.last("epoch") == 20
    assert measure_rate(log, clock="wall").rate.low is None


def test_shares_of_epochs_are_no_axis_of_two_logs(tmp_path):
    lines = [f"{at(5 * n)} {{'loss': {loss(n):.4f}, 'epoch': {n / 20}}}" for n in range(1, 90)]
    [log] = logs_of(tmp_path / "x", lines)
    assert log.axis == "unit"
    assert {"step", "loss"} <= log.uncertain.keys()


def test_an_epoch_with_its_evaluation_leaves_training_untimed(tmp_path):
    lines = [f"{at(80 * n)} Epoch {n}/40 train_loss: {2 / n:.4f} val_loss: {3 / n:.4f}"
             for n in range(1, 41)]  # fmt: skip
    [log] = logs_of(tmp_path / "x", lines)
    assert log.facts["always_evaluates"]


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M"])
def test_a_stamp_without_seconds_is_of_hours_and_minutes(form, tmp_path):
    lines = [f"{at(s / 2, form)} step {s} loss {loss(s):.4f}" for s in range(10, 30_000, 10)]
    [log] = logs_of(tmp_path / "x", lines)
    passed = log.column("time")[-1] - log.column("time")[0]
    assert passed == pytest.approx(15_000, abs=60)


def test_a_clock_of_two_parts_has_two_readings(tmp_path):
    lines = [f"[{at(s / 2, '%H:%M')}] step {s} loss {loss(s):.4f}" for s in range(10, 9000, 10)]
    [log] = logs_of(tmp_path / "x", lines)
    assert "a clock of two parts" in log.uncertain["time"]


def test_the_zone_of_a_stamp_counts(tmp_path):
    lines = [
        f"{at(s / 2 + 3600 * (s > 500), '%Y-%m-%dT%H:%M:%S')}+0{1 + (s > 500)}:00 step {s} "
        f"loss {loss(s):.4f}"
        for s in range(10, 1000, 10)
    ]
    [log] = logs_of(tmp_path / "x", lines)
    assert np.diff(log.column("time")) == pytest.approx(5.0)


@pytest.mark.parametrize("sign", ["_", "'", ","])
def test_a_number_may_have_a_sign_of_thousands(sign, tmp_path):
    lines = [f"step {s:,} loss {loss(s):.4f}".replace(",", sign) for s in range(10, 4001, 10)]
    [log] = logs_of(tmp_path / "x", lines)
    assert log.step.tolist() == list(range(10, 4001, 10))


def test_a_table_with_the_newest_row_first_is_one_run(tmp_path):
    steps = list(range(2000, 0, -10))
    rows = [f"{s},{loss(s):.4f},{s / 2}" for s in steps]
    [log] = logs_of(tmp_path / "x.csv", ["step,loss,elapsed_s", *rows])
    assert (log.attempts, log.step.tolist()) == (1, sorted(steps))


def test_two_programs_that_write_to_one_file_are_doubted(tmp_path):
    rows = [(s / 2, s, loss(s)) for s in range(10, 2001, 10)]
    rows += [(s / 1.3, s, 1.3 * loss(s)) for s in range(10, 2001, 10)]
    lines = [f"{at(t)} step {s} loss {x:.4f}" for t, s, x in sorted(rows)]
    for log in logs_of(tmp_path / "x", lines):
        assert {"step", "loss", "time"} <= log.uncertain.keys()


def test_a_last_step_with_two_losses_is_doubted(tmp_path):
    lines = []
    for s in range(10, 2001, 10):
        lines.append(f"{at(s / 2)} step {s} loss {loss(s):.4f}")
        if s % 100 == 0:
            lines += [f"{at(s / 2)} Evaluation:", f"{at(s / 2)} step {s} loss {1.5 * loss(s):.4f}"]
    [log] = logs_of(tmp_path / "x", lines)
    assert "the last step is printed more than once" in log.uncertain["loss"]


def test_a_word_before_the_step_tells_whose_line_it_is(tmp_path):
    lines = []
    for s in range(10, 2001, 10):
        lines.append(f"step {s} loss {loss(s):.4f}")
        lines += [f"EMA step {s} loss {loss(s) / 2:.4f}"] if s % 100 == 0 else []
    [log] = logs_of(tmp_path / "x", lines)
    assert log.last("loss") == pytest.approx(loss(2000), abs=1e-4)


def test_only_a_series_of_epochs_names_the_epochs_of_bars(tmp_path):
    lines = []
    for epoch in range(1, 11):
        lines += [f"{n}0%|##| {n}/10 [00:0{n}<00:01, 1.0it/s]" for n in range(10)]
        lines += ["100%|##| 10/10 [00:10<00:00, 1.0it/s]"]
        lines += [f"Best so far at epoch {epoch}"] if epoch in (1, 2, 4, 7) else []
    [log] = logs_of(tmp_path / "x", lines)
    assert int(log.step[-1]) == 100


def test_a_setting_is_no_epoch(tmp_path):
    lines = ["Namespace(epoch=300, seed=1)"]
    lines += [f"step {s} loss {loss(s):.4f}" for s in range(10, 500, 10)]
    [log] = logs_of(tmp_path / "x", lines)
    assert len(np.unique(log.column("epoch"))) < 2


@pytest.mark.parametrize(("batch", "axis"), [(64, "sample"), (1, "step")])
def test_a_number_without_a_name_may_count_samples(batch, axis, tmp_path):
    lines = [
        f"Train Epoch: {e} [{n * batch}/{1000 * batch} ({n // 10}%)] Loss: {9 / (e + n):.4f}"
        for e in range(1, 4)
        for n in range(0, 1000, 10)
    ]
    [log] = logs_of(tmp_path / "x", lines)
    assert log.axis == axis
    assert ("samples or steps" in log.uncertain.get("step", "")) == (axis == "sample")


def test_a_mean_over_steps_is_not_compared_with_the_loss_of_a_step(tmp_path, capsys):
    steps = range(10, 4001, 10)
    (tmp_path / "a").write_text("\n".join(f"step {s} loss {loss(s):.4f}" for s in steps))
    (tmp_path / "b").write_text("\n".join(f"step {s} running_loss {loss(s):.4f}" for s in steps))
    assert main(["loss", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out, err = capsys.readouterr()
    assert "one loss is a mean over steps" in out
    assert "the loss is 'running_loss'" in err


def test_a_line_that_is_too_long_to_be_read_is_told(tmp_path):
    rows = [f"epoch: {n}/400, train_loss: {5 / n:.4f}" for n in range(1, 401)]
    [log] = logs_of(tmp_path / "x", [*rows[:20], "".join(rows[20:])])
    assert any("may be in their rest" in remark for remark in log.remarks)
