"""Lines in which a value has its name, or a count its meaning, elsewhere than before the number."""

from pathlib import Path

import pytest

from analysis.read.find import read_logs
from analysis.read.run_log import RunLog


def log_of(path: Path, lines: list[str]) -> RunLog:
    path.write_text("\n".join(lines))
    [log] = read_logs([str(path)])
    return log


def test_a_name_may_stand_before_the_count(tmp_path):
    lines = [f"INFO x.Listener - Loss at step {n} is {9 / n:.4f}" for n in range(100, 2100, 100)]
    log = log_of(tmp_path / "x", lines)
    assert (log.axis, log.step[-1], log.last("loss")) == ("step", 2000, 0.0045)


def test_a_pair_in_brackets_is_an_epoch_and_a_step(tmp_path):
    lines = [f"[{e}, {n:5d}] loss: {9 / (e + n):.4f}" for e in (1, 2) for n in (500, 1000, 1500)]
    log = log_of(tmp_path / "x", lines)
    assert (log.step[-1], log.last("epoch"), log.last("loss")) == (3000, 2, 0.006)
    log = log_of(tmp_path / "x", lines[:3])
    assert (log.axis, log.step[-1]) == ("step", 1500)


def test_an_epoch_that_ends_has_the_loss_of_the_next_line(tmp_path):
    lines = []
    for n in range(1, 21):
        lines += [
            f"saving the best model at the end of epoch {n}",
            f"End of epoch {n} / 100 \t Time Taken: 600.5 sec",
            f"Generator Loss: {9 / n:.4f}, Discriminator Loss: {8 / n:.4f}",
        ]
    log = log_of(tmp_path / "x", lines)
    assert (log.axis, log.step[-1], log.last("loss")) == ("epoch", 20, 0.45)
    assert "two readings" in log.uncertain["loss"]


def test_the_better_name_of_two_steps_is_taken(tmp_path):
    lines = []
    for n in range(1, 11):
        lines += [
            "-" * 30, f"|    iterations      | {n}      |", f"|    total_timesteps | {2048 * n} |",
            f"|    loss            | {9 / n:.3f} |",
        ]  # fmt: skip
    log = log_of(tmp_path / "x", lines)
    assert (log.step[-1], log.last("loss")) == (20480, 0.9)


def test_a_bar_goes_on_past_its_total_or_has_none(tmp_path):
    lines = []
    for epoch in range(3):
        for n in range(1, 21):
            head = f"{5 * n}%|###| {n}/14 [00:{n:02d}<00:01" if n < 15 else f"{n}it [00:{n:02d}"
            lines.append(f"Epoch {epoch}: {head}, 1.00s/it, loss={9 / (20 * epoch + n):.4f}]")
    log = log_of(tmp_path / "x", lines)
    assert (log.step[-1], log.last("loss")) == (60, 0.15)
    bare = [f"{n}it [00:{n:02d}, 1.00s/it, loss={9 / n:.4f}]" for n in [*range(1, 31)] * 2]
    log = log_of(tmp_path / "x", bare)
    assert (log.step[-1], log.attempts) == (60, 1)


@pytest.mark.parametrize(
    "bar",
    ["{share}%|##  | {n}/5 [00:0{n}<00:01, 1.0it/s]", "{share}% ━━━━ {n}/5 5.3it/s {n}.0s<0.2s"],
    ids=["tqdm", "Ultralytics"],
)
def test_the_header_of_bars_stays_that_of_later_ones(bar, tmp_path):
    lines = ["    Epoch   GPU_mem  box_loss   cls_loss   Size"]
    for e in range(1, 7):
        lines += [
            f"    {e}/6    2.2G    {9 / (e * n):.3f}    {8 / (e * n):.3f}    640: "
            + bar.format(n=n, share=20 * n)
            for n in range(1, 6)
        ]
        lines += ["    Class   Images   Box(P   R", "    all   7866   0.6   0.8"]
    log = log_of(tmp_path / "x", lines)
    assert (log.step[-1], log.last("epoch"), log.last("loss")) == (30, 6, 0.3)
    assert "box_loss, cls_loss" in log.uncertain["loss"]


def test_a_bar_of_anything_is_doubted(tmp_path):
    lines = [f" {n}%|# | {n}/900 [00:{n:02d}<09:00, 2.5s/issue]" for n in range(1, 50)]
    assert "may be that of anything" in log_of(tmp_path / "x", lines).uncertain["step"]


def test_a_configuration_is_no_record(tmp_path):
    line = "config_cb opt {'epochs': 100, 'batch_size': 16, 'hyp': {'loss_ota': 1, 'lr0': 0.01}}"
    losses = [f"epoch {n} loss {9 / n:.4f}" for n in range(1, 6)]
    log = log_of(tmp_path / "x", [line, line, line, *losses])
    assert (log.step[-1], log.last("loss")) == (5, 1.8)


def test_lines_of_another_kind_may_be_another_run(tmp_path):
    lines = [
        f"Epoch {n}: Train {name} Loss: {9 / n:.4f}"
        for name in ("MSE", "MAE")
        for n in range(1, 21)
    ]
    remarks = log_of(tmp_path / "x", lines).remarks
    assert any("may be another run" in remark for remark in remarks)


def test_lines_of_another_kind_may_end_with_another_loss(tmp_path):
    lines = []
    for n in range(1, 21):
        lines.append(f"Epoch 1 Batch {10 * n} Loss {9 / (20 + n):.4f}")
        lines.append(f"Epoch 1 Loss {7 / n:.4f} Accuracy 0.5")
    remarks = log_of(tmp_path / "x", lines).remarks
    assert any("their last loss is 0.35, and may be the one" in remark for remark in remarks)


def test_zeros_between_letters_are_left_out(tmp_path):
    (tmp_path / "x").write_bytes(
        b"step 1 loss 5.0\r\n" + "\n".join(f"step {n} loss {9 / n:.4f}" for n in range(2, 30))
        .encode("utf-16-le")
    )  # fmt: skip
    [log] = read_logs([str(tmp_path / "x")])
    assert (len(log), log.step[-1]) == (29, 29)


def test_values_are_found_in_what_python_prints(tmp_path):
    lines = [f"Step: {n} char-loss:  tensor({9 / n:.4f}, device='cuda:0')" for n in range(1, 21)]
    assert log_of(tmp_path / "x", lines).last("loss") == 0.45
    lines = [f"('epoch: ', {n}, '\\t train loss', array({9 / n:.4f}))" for n in range(1, 21)]
    assert log_of(tmp_path / "x", lines).last("loss") == 0.45
    lines = [f"Loss after {n} epochs: {9 / n:.4f}" for n in range(1, 21)]
    log = log_of(tmp_path / "x", lines)
    assert (log.axis, log.step[-1], log.last("loss")) == ("epoch", 20, 0.45)


def test_lines_of_another_kind_may_go_on(tmp_path):
    lines = [f"TIMESTEP {n} | STATE observe, GATE {n % 2}" for n in range(100)]
    lines += [f"TIMESTEP {n} | TEMPER {n % 3}" for n in range(100, 150)]
    log = log_of(tmp_path / "x", lines)
    assert log.step[-1] == 99
    assert any("lines of another kind go on to timestep 149" in remark for remark in log.remarks)


@pytest.mark.parametrize(("word", "last"), [("Val", 30), ("Quick", 29)])
def test_the_last_line_of_a_training_may_have_another_form(word, last, tmp_path):
    lines = [
        f"Epoch {n}/30 | Loss: {3 / n:.4f} | {word} Acc ({name}={50 + n})"
        for n, name in enumerate(["sample", "sample", "sample", "sample", "full"] * 6, start=1)
    ]
    log = log_of(tmp_path / "x", lines)
    assert (log.step[-1], log.last("loss")) == (last, round(3 / last, 4))
    assert any("go on to epoch 30" in remark for remark in log.remarks) == (last < 30)


def test_a_column_of_fractions_is_no_step(tmp_path):
    rows = [f"{0.01 + n % 3 / 1000},{9 / n}" for n in range(1, 21)]
    (tmp_path / "x.csv").write_text("train_step,train_loss\n" + "\n".join(rows))
    [log] = read_logs([str(tmp_path / "x.csv")])
    assert (log.axis, len(log), log.last("loss")) == ("unit", 20, 0.45)


def test_lines_that_differ_in_a_unit_are_one_kind(tmp_path):
    times = [500 + 7 * n % 13 for n in range(1, 46)]
    lines = [
        f"Batch {n}/900 | Loss: {9 / n:.4f} | Time: {ms}ms | ETA: 29.5m" if n % 3
        else f"Batch {n}/900 | Loss: {9 / n:.4f} | Time: {ms / 1000}s | ETA: 1.5h"
        for n, ms in enumerate(times, start=1)
    ]  # fmt: skip
    log = log_of(tmp_path / "x", lines)
    assert (len(log), log.last("loss")) == (45, 0.2)
    assert log.column("step_s").tolist() == pytest.approx([ms / 1000 for ms in times])


def test_bars_of_two_processes_that_draw_at_once_have_no_loss_for_certain(tmp_path):
    def bar(n: int, loss: float) -> str:
        return f"{n}%|##| {n}/99 [00:{n // 2:02d}<00:01, 2.0it/s, loss={loss:.4f}]"

    two = [bar(n, at + 9 / n) for n in range(1, 60) for at in (0.0, 1.0)]
    assert "two processes" in log_of(tmp_path / "x", two).uncertain["loss"]
    one = [bar(n, 9 / (n - at)) for n in range(2, 60) for at in (1, 0)]
    assert not log_of(tmp_path / "x", one).uncertain
