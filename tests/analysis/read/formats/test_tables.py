"""A table says what it does not say for certain: which of two columns, which batch, which step."""

from pathlib import Path

import pytest

from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from configs.errors import Unreadable

STEPS = range(10, 2010, 10)


def table(path: Path, columns: dict[str, str], *, step: str = "{n}") -> RunLog:
    """Return the log of a table; a value may have `{n}`, the step, and `{x}`, the loss."""
    rows = [[name.strip() for name in ["step", "elapsed_s", *columns]]]
    for n in STEPS:
        values = {"n": n, "x": 3 / n}
        cells = [step if step == "{n}" else f"{float(f'{n:.2g}'):{step}}", f"{n / 2}"]
        rows.append([one.format(**values) for one in [*cells, *columns.values()]])
    path.write_text("\n".join(map(",".join, rows)))
    [log] = read_logs([str(path)])
    return log


def test_two_values_of_one_name_in_a_line_leave_it_uncertain(tmp_path):
    rows = [f"step {n} loss {3 / n:.4f} loss {2 / n:.4f}" for n in STEPS]
    (tmp_path / "x").write_text("\n".join(rows))
    [log] = read_logs([str(tmp_path / "x")])
    assert "two values called 'loss'" in log.uncertain["loss"]


@pytest.mark.parametrize("step", [".0f", ".1e"])
def test_steps_of_two_digits_have_no_certain_rate(step, tmp_path):
    log = table(tmp_path / "x.csv", {"loss": "{x}"}, step=step)
    assert "rounded" in log.uncertain["step"]
    assert measure_rate(log, clock="wall").rate.low is None


@pytest.mark.parametrize(
    ("columns", "batch"),
    [
        ({"batch_size": "8"}, 8),
        ({"batch_size": "8", "world_size": "4"}, None),
        ({"batch_size": "8", "grad_accum": "2"}, None),
        ({"batch_size": "8", "gradient_accumulation_steps": "2"}, None),
        ({"batch_size": "8", "global_batch_size": "64", "world_size": "8"}, 64),
    ],
)
def test_a_batch_beside_ranks_or_accumulation_is_not_taken_as_the_whole(columns, batch, tmp_path):
    log = table(tmp_path / "x.csv", {"loss": "{x}", **columns})
    assert (log.global_batch, log.last("batch")) == (batch, batch)
    assert any("--set batch" in remark for remark in log.remarks) == (batch is None)


def test_a_table_without_a_count_is_read_by_its_loss(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("train_loss,val_loss\n" + "\n".join(f"{9 / n},{8 / n}" for n in range(1, 21)))
    [log] = read_logs([str(path)])
    assert (log.axis, len(log), log.last("loss")) == ("unit", 20, pytest.approx(0.45))
    assert "neither a step nor an epoch" in log.uncertain["step"]
    path.write_text("model,loss\n" + "\n".join(f"net{n},{9 / n}" for n in range(1, 21)))
    with pytest.raises(Unreadable, match="no run in it"):
        read_logs([str(path)])


@pytest.mark.parametrize(
    ("text", "axis", "last"),
    [
        ('{"train_loss": [3, 2, 1], "val_loss": [4, 3, null], "best": 2}', "unit", 3),
        ('{"history": {"epochs": [5, 6, 7], "loss": [3, 2, 1], "lr": [1, 2]}}', "epoch", 7),
    ],
)
def test_lists_of_numbers_are_records(text, axis, last, tmp_path):
    (tmp_path / "history.json").write_text(text)
    [log] = read_logs([str(tmp_path)])
    assert (log.axis, log.step[-1], log.last("loss")) == (axis, last, 1)


def test_an_evaluation_without_a_step_is_at_the_record_before_it(tmp_path):
    rows = [f"{n},{9 / n},\n,,{8 / n}" for n in range(1, 21)]
    (tmp_path / "x.csv").write_text("\n".join(["step,loss,eval_loss", *rows]))
    [log] = read_logs([str(tmp_path)])
    assert (len(log), log.evaluations[-1]["step"], log.evaluations[-1]["eval_loss"]) == (
        20,
        20,
        0.4,
    )


def test_the_last_of_fewer_evaluations_is_of_the_last_record(tmp_path):
    (tmp_path / "history.json").write_text('{"loss": [4, 3, 2, 1], "val_loss": [5, 2.5]}')
    [log] = read_logs([str(tmp_path)])
    assert log.evaluations == ({"val_loss (the last)": 2.5, "step": 4, "line": 4},)


def test_tables_that_web_pages_export_are_read_by_run_and_by_tag(tmp_path):
    kinds = ("", "__MIN", "__MAX")
    names = [f"{run} - train/loss{kind}" for run in ("base", "a - b") for kind in kinds]
    rows = [f'"{n}"' + f',"{9 / n}"' * 3 + f',"{8 / n}"' * 3 for n in range(1, 31)]
    head = ",".join(f'"{name}"' for name in ["Step", *names])
    (tmp_path / "export.csv").write_text("\n".join([head, *rows]))
    logs = read_logs([str(tmp_path)])
    assert [(log.name, log.last("loss"), log.uncertain) for log in logs] == [
        ("base", 0.3, {}), ("a - b", pytest.approx(8 / 30), {}),
    ]  # fmt: skip
    path = tmp_path / "run-base-tag-train_loss.csv"
    rows = [f"{1.7e9 + n},{n},{9 / n}" for n in range(1, 31)]
    path.write_text("\n".join(["Wall time,Step,Value", *rows]))
    assert read_logs([str(path)])[0].last("loss") == 0.3


def test_texts_of_records_hold_counts_and_durations(tmp_path):
    records = [
        f'{{"loss": {9 / n}, "global_step/max_steps": "{n}/20", "elapsed_time": "{n}m 30s"}}'
        for n in range(1, 21)
    ]
    (tmp_path / "logging.jsonl").write_text("\n".join(records))
    [log] = read_logs([str(tmp_path / "logging.jsonl")])
    assert (log.axis, log.step[-1], log.last("elapsed_s")) == ("step", 20, 1230)
    assert not log.uncertain


def test_two_columns_of_one_name_leave_it_uncertain(tmp_path):
    log = table(tmp_path / "x.csv", {"loss": "{x}", "loss ": "1.5"})
    assert log.last("loss") == pytest.approx(3 / STEPS[-1])
    assert "two readings: 'loss' and 'loss'" in log.uncertain["loss"]
    again = table(tmp_path / "x.csv", {"loss": "{x}", "loss ": "{x}"})
    assert not again.uncertain


def test_a_column_of_the_names_of_runs_tells_them_apart(tmp_path):
    rows = [f"{run},{n},{k / n}" for k, run in enumerate(("small", "large"), 1) for n in STEPS]
    (tmp_path / "x.csv").write_text("\n".join(["run,step,loss", *rows]))
    logs = read_logs([str(tmp_path / "x.csv")])
    assert [log.name for log in logs] == ["small", "large"]
    assert [log.column("loss")[0] for log in logs] == pytest.approx([0.1, 0.2])


def test_a_column_of_the_numbers_of_runs_is_a_value(tmp_path):
    rows = [f"{n},{n},{1 / n}" for n in STEPS]
    (tmp_path / "x.csv").write_text("\n".join(["run,step,loss", *rows]))
    assert len(read_logs([str(tmp_path / "x.csv")])) == 1
