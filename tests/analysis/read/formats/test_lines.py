"""Each text format of one line a step: steps, losses and rate are those planted."""

import datetime
from collections.abc import Callable

import numpy as np
import pytest

from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs
from tests.analysis.foreign_logs import START, synthetic_log

N, PER_EPOCH = 60, 100


def stamp(seconds: float, form: str) -> str:
    return f"{datetime.datetime.fromtimestamp(START + seconds, datetime.UTC):{form}}"


def epoch_and_batch(step: int) -> tuple[int, int]:
    """The epoch, from 0, and the batch in it, from 1."""
    return (step - 1) // PER_EPOCH, (step - 1) % PER_EPOCH + 1


# Each with a line of step s at t seconds, with a loss x and r steps per second, and its clock.
LINES: dict[str, tuple[Callable[[int, float, float, float], str], str | None]] = {
    "speedrun": (
        lambda s, t, x, r: (
            f"step:{s}/9999 train_loss:{x:.4f} train_time:{t * 1e3:.0f}ms "
            f"step_avg:{t / s * 1e3:.2f}ms"
        ),
        "wall",
    ),
    "OLMo": (
        lambda s, t, x, r: (
            f"{stamp(t, '%Y-%m-%d %H:%M:%S')}.250\tnode-02:0\tolmo.train:979\tINFO\t"
            f"[step={s}/9999,epoch=0]\n    optim/total_grad_norm=5.982\n"
            f"    train/CrossEntropyLoss={x:.4f}\n    train/Perplexity=22,575\n"
            f"    throughput/total_tokens={s * 131072:,}"
        ),
        "wall",
    ),
    "llm.c console": (
        lambda s, t, x, r: (
            f"step {s:4d}/9999 | loss {x:7.6f} (+1.20z)| norm 0.3838 (-0.5z)| "
            f"lr 2.57e-04 | {1e3 / r:.2f} ms | 56.1% bf16 MFU | 1803401 tok/s"
        ),
        None,
    ),
    "MaxText": (
        lambda s, t, x, r: (
            f"completed step: {s}, seconds: {1 / r:.3f}, TFLOP/s/device: 123.4, "
            f"Tokens/s/device: {8192 * r:.3f}, total_weights: 65536, loss: {x:.3f}"
        ),
        None,
    ),
    "detectron2": (
        lambda s, t, x, r: (
            f"[{stamp(t, '%m/%d %H:%M:%S')} d2.utils.events]:  eta: 20:42:25  "
            f"iter: {s}  total_loss: {x:.4g}  loss_cls: 0.1  time: {1 / r:.4f}  data_time: 0.0625  "
            "lr: 0.02  max_mem: 5000M"
        ),
        "wall",
    ),
    "mmengine": (
        lambda s, t, x, r: (
            f"{stamp(t, '%Y/%m/%d %H:%M:%S')} - mmengine - INFO - Epoch(train)   "
            f"[{epoch_and_batch(s)[0] + 1}][{epoch_and_batch(s)[1]:3}/{PER_EPOCH}]  lr: 1e-03  "
            f"eta: 2 days, 1:00:00  time: {1 / r:.4f}  data_time: 0.1  memory: 44  loss: {x:.4f}"
        ),
        "wall",
    ),
    "MetricLogger": (
        lambda s, t, x, r: (
            f"Epoch: [{epoch_and_batch(s)[0]}]  "
            f"[{epoch_and_batch(s)[1]:4}/{PER_EPOCH}]  eta: 0:10:00  lr: 0.000100  "
            f"loss: {x:.4f} ({x:.4f})  time: {1 / r:.4f}  data: 0.0004  max mem: 9999"
        ),
        "printed",
    ),
    "timm": (
        lambda s, t, x, r: (
            f"Train: {epoch_and_batch(s)[0]} "
            f"[{epoch_and_batch(s)[1]:4d}/{PER_EPOCH} ( 40%)]  Loss: {x:.4f} (6.95)  "
            f"Time: {1 / r:.3f}s, {256 * r:>7.2f}/s  (0.1s,  55.1/s)  LR: 1.0e-05  Data: 0.1"
        ),
        "printed",
    ),
    "key: value": (
        lambda s, t, x, r: f"{stamp(t, '%Y-%m-%d %H:%M:%S')} | step: {s} | loss: {x:.4f} | a=0.3",
        "wall",
    ),
    "key=value, step last": (
        lambda s, t, x, r: f"loss={x:.4f}, lr=1e-4, epoch=0, step={s}",
        None,
    ),
}


def read_lines(name, path, *, every=50):
    planted = synthetic_log(n=N, every=every)
    line, clock = LINES[name]
    rows = zip(planted.step.tolist(), planted.seconds, planted.loss, planted.rate, strict=True)
    path.write_text("Namespace(lr=0.1, seed=3)\n" + "\n".join(line(*row) for row in rows))
    [log] = read_logs([str(path)])
    return log, planted, clock


@pytest.mark.parametrize("name", LINES)
def test_steps_and_losses_are_those_planted(name, tmp_path):
    log, planted, _ = read_lines(name, tmp_path / "x")
    assert log.format == "key: value"
    assert log.step.tolist() == planted.step.tolist()
    assert log.column("loss") == pytest.approx(planted.loss, rel=2e-3, abs=1e-3)
    assert log.axis == "step"


@pytest.mark.parametrize("name", [name for name, (_, clock) in LINES.items() if clock])
def test_the_rate_is_the_planted_one_on_a_named_clock(name, tmp_path):
    log, _, clock = read_lines(name, tmp_path / "x", every=200)
    found = measure_rate(log, clock=None)
    assert found.clock == clock
    assert found.steps_per_s.value == pytest.approx(0.5, rel=0.01)


def test_a_speedruns_validation_is_an_evaluation_and_no_training_step(tmp_path):
    lines = []
    for step in range(1, 101):
        lines.append(f"step:{step}/100 train_time:{step * 120}ms step_avg:120.00ms")
        if step % 25 == 0:
            lines.append(
                f"step:{step}/100 val_loss:{5 - step / 50} train_time:{step * 120}ms "
                "step_avg:120.00ms"
            )
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.step.tolist() == list(range(1, 101))
    assert [(one["step"], one["val_loss"]) for one in log.evaluations] == [
        (25, 4.5), (50, 4.0), (75, 3.5), (100, 3.0)
    ]  # fmt: skip


def test_deepspeeds_timer_is_read_by_its_time_stamps(tmp_path):
    planted = synthetic_log(n=N)
    lines = [
        line
        for s, t in zip(planted.step.tolist(), planted.seconds, strict=True)
        for line in (
            f"[{stamp(t, '%Y-%m-%d %H:%M:%S,%f')[:-3]}] [INFO] [logging.py:96:log_dist] [Rank 0] "
            f"step={s}, skipped=4, lr=[1e-4, 1e-4], mom=[(0.9, 0.95), (0.9, 0.95)]",
            f"[{stamp(t, '%Y-%m-%d %H:%M:%S,%f')[:-3]}] [INFO] [timer.py:260:stop] epoch=0/"
            f"micro_step={4 * s}/global_step={s}, RunningAvgSamplesPerSec=25.02, "
            "CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB",
        )
    ]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.step.tolist() == planted.step.tolist()
    assert measure_rate(log, clock=None).steps_per_s.value == pytest.approx(0.5, rel=0.01)


def test_stylegan_counts_images(tmp_path):
    lines = [
        f"tick {n:<5d} kimg {4.0 * n:<8.1f} time {2 * n:02d}m 30s       sec/tick 120.0   "
        "sec/kimg 30.00   maintenance 0.1    cpumem 2.00   gpumem 8.00"
        for n in range(30)
    ]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.axis == "sample"
    assert log.step.tolist() == [4000 * n for n in range(30)]
    assert measure_rate(log, clock="printed").images_per_s in (None, pytest.approx(1000 / 30))


def test_epochs_without_steps_are_the_axis(tmp_path):
    lines = [f"Epoch {n:02d} loss {3 / n:.3f} val_loss {4 / n:.3f}" for n in range(1, 20)]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.axis == "epoch"
    assert log.step.tolist() == list(range(1, 20))
    assert log.column("loss") == pytest.approx([3 / n for n in range(1, 20)], abs=1e-3)
    assert any("counts epochs" in remark for remark in log.remarks)


def test_a_table_between_dashes_is_one_record(tmp_path):
    planted = synthetic_log(n=N)
    tables = [
        f"{'-' * 26}\n| grad_norm    | 0.12     |\n| loss         | {x:<8.3g} |\n"
        f"| loss_q0      | 0.3      |\n| samples      | {s * 8:<8} |\n| step         | {s:<8} |\n"
        f"{'-' * 26}"
        for s, x in zip(planted.step.tolist(), planted.loss, strict=True)
    ]
    (tmp_path / "x").write_text("creating model...\n" + "\n".join(tables))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.step.tolist() == planted.step.tolist()
    assert log.column("images").tolist() == [8 * step for step in planted.step]


def test_keras_draws_every_epoch_as_a_bar(tmp_path):
    text = "".join(
        f"Epoch {n}/10\n 1/99 [....] - ETA: 9s - loss: 9.0\b\b\b\b 50/99 [==>..] - ETA: 4s - "
        f"loss: 5.0\b\b\b99/99 [=====] - 12s 120ms/step - loss: {3 / n:.4f} - val_loss: 2.5\n"
        for n in range(1, 11)
    )
    (tmp_path / "x").write_text(text)
    [log] = read_logs([str(tmp_path / "x")])
    assert (log.axis, int(log.step[-1])) == ("step", 990)
    assert log.last("loss") == pytest.approx(0.3, abs=1e-4)


def test_a_loss_that_is_never_finite_is_an_event(tmp_path):
    (tmp_path / "x").write_text("\n".join(f"step: {n} loss: nan" for n in range(1, 20)))
    [log] = read_logs([str(tmp_path / "x")])
    assert np.isnan(log.column("loss")).all()
    assert [(e["reason"], e["step"], e["line"]) for e in log.events] == [("nan", 1, 1)]


@pytest.mark.parametrize("total", ["/150", ""])
def test_steps_that_restart_in_every_epoch_go_on(total, tmp_path):
    lines = [
        f"epoch: {epoch} step: {step}{total} loss: {3 / (150 * epoch + step):.4f}"
        for epoch in range(10)
        for step in range(10, 151, 10)
    ]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.step.tolist() == list(range(10, 1501, 10))
    assert log.attempts == 1
