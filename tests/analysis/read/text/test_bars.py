"""Progress bars: drawings, what stands beside them, and their clock."""

import numpy as np
import pytest

from analysis.measure.rate import measure_rate
from configs.errors import Unreadable
from tests.analysis.foreign_logs import logs_of


def test_a_bar_that_loads_is_no_run(tmp_path):
    bars = [f"Loading checkpoint shards: {25 * n}%|##| {n}/4 [00:0{n}<00:01, 1.0it/s]"
            for n in range(5)]  # fmt: skip
    with pytest.raises(Unreadable):
        logs_of(tmp_path / "x", "\r".join(bars))


def test_only_the_last_drawing_of_every_bar_is_every_epoch(tmp_path):
    bars = [f"Epoch {n}: 100%|####| 800/800 [01:40<00:00, 8.00it/s, loss=0.5]" for n in range(5)]
    [log] = logs_of(tmp_path / "x", "\n".join(bars))
    assert log.step.tolist() == [800, 1600, 2400, 3200, 4000]


def test_a_line_glued_to_a_bar_has_the_step_of_the_bar(tmp_path):
    bar = "Epoch 1/9: {0}%|##| {0}/100 [00:{0:02d}<01:00, 1.0it/s, Cls=0.1]"
    rows = [
        bar.format(n) + (f"INFO - Epoch 1/9 [{n}/100] | Loss: {9 / n:.3f}" if n % 10 == 0 else "")
        for n in range(1, 58)
    ]
    [log] = logs_of(tmp_path / "x", "\r".join(rows))
    assert int(log.step[-1]) == 57
    assert log.column("loss")[log.step == 50] == pytest.approx(9 / 50, abs=1e-3)


def test_a_line_of_names_names_the_values_before_a_bar(tmp_path):
    lines = []
    for e in range(1, 6):
        lines.append("      Epoch    GPU_mem   box_loss   cls_loss       Size")
        lines += [
            f"        {e}/5      2.3G      {1.2 / e:.4g}      {3.4 / e:.4g}        640: "
            f"{10 * i:3d}%|##   | {i}/10 [00:{i:02d}<00:01,  1.00it/s]"
            for i in range(1, 11)
        ]
    [log] = logs_of(tmp_path / "x", "\n".join(lines))
    assert int(log.step[-1]) == 50
    assert "two readings: box_loss, cls_loss" in log.uncertain["loss"]


def test_of_losses_apart_from_a_bar_at_unknown_steps_the_last_is_of_its_end(tmp_path):
    bars = [f"{n}%|##| {n}/167 [00:{n // 3:02d}<00:01, 3.0it/s]" for n in range(168)]
    dicts = [f"{{'loss': {5 / n:.4f}, 'epoch': {n * n / 100:.2f}}}" for n in range(1, 17)]
    [log] = logs_of(tmp_path / "x", "\n".join([*bars, *dicts]))
    assert log.step[np.isfinite(log.column("loss"))].tolist() == [167]
    assert log.last("loss") == 0.3125


def test_the_clock_of_a_bar_goes_on_where_the_epoch_is_a_share(tmp_path):
    rows = [
        f"{n}%|#| {n}/100 [{n // 12:02d}:{5 * n % 60:02d}<09:00, 5.0s/it]"
        f"{{'loss': {3 / n:.4f}, 'epoch': {n / 50:.2f}}}"
        for n in range(1, 101)
    ]
    [log] = logs_of(tmp_path / "x", "\n".join(rows))
    rate = measure_rate(log, clock=None).rate
    assert rate is not None
    assert rate.value == pytest.approx(0.2, rel=0.01)


def test_two_drawings_of_a_bar_with_a_record_are_drawings_of_it(tmp_path):
    bars = [f"{n}%|#| {n}/100 [00:{n % 60:02d}<00:09, 1.0it/s]" for n in range(1, 101)]
    record = "{{'loss': {:.4f}, 'epoch': {:.2f}}}"
    text = ""
    for n, bar in enumerate(bars, start=1):
        glued = "" if n in (30, 60) else "\n"
        text += bar + (glued + record.format(3 / n, n / 50) if n % 10 == 0 else "") + "\n"
    [log] = logs_of(tmp_path / "x", text)
    assert (log.step[-1], log.last("loss")) == (100, 0.03)


@pytest.mark.parametrize(("head", "doubted"), [("", set()), ("critic: ", {"step", "loss"})])
def test_bars_of_another_length_after_the_training_may_be_another(head, doubted, tmp_path):
    drawn = [
        f"{head}50%|# | {n}/{of} [{n // 60:02d}:{n % 60:02d}<01:00, 1.00it/s, loss={3 / n:.3f}]"
        for of in (300, 100)
        for n in range(1, of + 1)
    ]
    [log] = logs_of(tmp_path / "x", "\r".join(drawn))
    assert log.step[-1] == 300
    assert any("may be another run" in remark for remark in log.remarks)
    assert set(log.uncertain) == doubted


@pytest.mark.parametrize("lag", [0, 5])
def test_bars_that_processes_draw_at_once_are_read_as_one(lag, tmp_path):
    jitter = np.random.default_rng(lag).uniform(0, 0.4, (4, 2000))
    drawn = [
        (s := (n + rank * lag) / 2 + jitter[rank, n],
         f"Steps: 50%|# | {n}/2000 [{int(s) // 60:02d}:{int(s) % 60:02d}<01:00, 2.00it/s]")
        for rank in range(4)
        for n in range(2000)
    ]  # fmt: skip
    [log] = logs_of(tmp_path / "x", "\r".join(line for _, line in sorted(drawn)))
    assert (int(log.step[-1]), log.attempts) == (1999, 1)
    rate = measure_rate(log, clock="bar").steps_per_s
    assert rate.value == pytest.approx(2, rel=0.03)
    assert (rate.low is None) == (lag > 0)


@pytest.mark.parametrize(
    "line",
    ["Generating Images: 100%|####| 4/4 [00:20<00:00, 5.00s/it]", "saving checkpoint: a-000250.pt",
     "Running validation... Generating 4 images with prompt: a dog"],
)  # fmt: skip
def test_samples_and_saves_between_two_states_of_a_bar_are_pauses(line, tmp_path):
    bars = []
    for n in range(1, 1001):
        t = n + 20 * ((n - 1) // 50)
        bars.append(
            f"50%|# | {n}/1000 [{t // 60:02d}:{t % 60:02d}<01:00, 1.00it/s, loss={3 / n:.3f}]"
        )
        bars += [line] if n % 50 == 0 else []
    [log] = logs_of(tmp_path / "x", "\n".join(bars))
    rate = measure_rate(log, clock="bar").steps_per_s
    assert rate.value == pytest.approx(1, rel=0.01)
