"""Runs in the files of wandb and MLflow are read in place, on the trainer's own steps."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.measure.rate import measure_rate
from analysis.read.find import read_all, read_logs
from configs.errors import Unreadable
from tests.analysis import foreign_logs as write
from tests.analysis.foreign_logs import START, framed, synthetic_log, wandb_records

# Written by wandb 0.31: 8 losses at steps 10 to 80, the sixth NaN, an image, evaluations at 40, 80.
REAL = Path(__file__).parent / "run-abcd1234.wandb"


def read(path):
    [log] = read_logs([str(path)])
    return log


def wandb_run(folder, rows, **told):
    """Write rows as an offline run of wandb, and return its folder."""
    run = folder / "offline-run-20260101_120000-abcd1234"
    (run / "files").mkdir(parents=True)
    timed = [{"_timestamp": START + n, **row} for n, row in enumerate(rows)]
    (run / "run-abcd1234.wandb").write_bytes(framed(wandb_records(timed, **told)))
    return run


def test_a_file_that_wandb_wrote_is_read_with_its_name_config_and_nested_metrics(tmp_path):
    log = read(REAL)
    assert (log.name, log.axis, log.format) == ("eager", "step", "wandb")
    assert log.step.tolist() == list(range(10, 90, 10))
    losses = [2 / n if n != 6 else np.nan for n in range(1, 9)]
    assert log.column("loss") == pytest.approx(losses, nan_ok=True)
    assert [event["step"] for event in log.events] == [60]
    assert log.config == {"lr": 0.001, "model.depth": 2}
    assert [(e["step"], e["eval/loss"]) for e in log.evaluations] == [(40, 0.25), (80, 0.125)]
    assert log.column("gates.open")[3] == 4
    assert not [name for name in log.values if name.startswith("sample")]
    assert np.diff(log.column("time")).min() > 0
    assert not log.remarks


def test_the_machine_and_its_commit_are_told_but_not_the_ranks(tmp_path):
    log = read(wandb_run(tmp_path, [{"loss": 1.0, "global_step": n} for n in range(5)]))
    assert log.facts["commit"] == "0123456789abcdef"
    assert log.facts["placement"] == [{"gpu": "NVIDIA A100"}]
    assert "ranks" not in log.facts
    assert log.remarks == ("eager: its machine has 8 GPUs; --set gpus=N says how many ran",)


@pytest.mark.parametrize(
    ("rows", "axis", "steps"),
    [
        ([{"loss": 1.0, "_step": n} for n in range(6)], "unit", [0, 1, 2, 3, 4, 5]),
        ([{"loss": 1.0, "_step": 50 * n} for n in range(4)], "step", [0, 50, 100, 150]),
        ([{"loss": 1.0, "_step": n, "iter": 5 * n} for n in range(4)], "step", [0, 5, 10, 15]),
        # Counted anew in each epoch: no step of the training.
        ([{"loss": 1.0, "_step": n, "iter": n % 3} for n in range(6)], "unit", [0, 1, 2, 3, 4, 5]),
        # Done again after a resume: the newest counts.
        ([{"loss": 1.0, "_step": n, "iter": s} for n, s in enumerate([1, 2, 3, 2, 3])], "step",
         [1, 2, 3]),
    ],
)  # fmt: skip
def test_a_count_of_calls_is_no_step(rows, axis, steps, tmp_path):
    log = read(wandb_run(tmp_path, rows))
    assert (log.axis, log.step.tolist()) == (axis, steps)
    assert any("its step is not known" in remark for remark in log.remarks) == (axis == "unit")
    assert measure_rate(log, clock=None).unit == axis


def test_a_user_may_say_that_a_call_is_a_step(tmp_path, capsys):
    run = wandb_run(tmp_path, [{"loss": 1.0, "_step": n} for n in range(40)])
    assert main(["speed", str(run), "--columns", "step=_step"]) == 0
    out, err = capsys.readouterr()
    assert "steps/s" in out
    assert "not known" not in err


def test_a_time_that_is_no_date_does_not_replace_the_time_of_the_call(tmp_path):
    rows = [{"loss": 1.0, "global_step": n, "time": 0.3 + n % 3} for n in range(20)]
    log = read(wandb_run(tmp_path, rows))
    assert log.column("time") == pytest.approx(START + np.arange(20))


def test_records_without_the_trainers_step_are_counted(tmp_path):
    rows = [{"loss": 1.0, "global_step": n} for n in range(5)]
    log = read(wandb_run(tmp_path, [*rows, {"eval/loss": 2.0}, {"eval/loss": 3.0}]))
    assert len(log) == 5
    assert any("2 records without global_step not read" in remark for remark in log.remarks)


def test_only_the_records_of_a_run_are_read_from_its_folder(tmp_path):
    run = wandb_run(tmp_path, [{"loss": 1.0, "global_step": n} for n in range(9)])
    (run / "files" / "output.log").write_bytes(write.dit(synthetic_log(n=20)))
    (tmp_path / "wandb.csv").write_text("step,loss\n1,2\n2,1\n")
    assert [len(log) for log in read_logs([str(tmp_path)])] == [2, 9]
    (tmp_path / "latest-run").symlink_to(run)
    assert len(read(tmp_path / "latest-run")) == 9
    assert len(read_logs([str(tmp_path)])) == 2


def many(n: int = 3000) -> list[bytes]:
    rows = [{"loss": 1.0 + i, "global_step": i, "_timestamp": START + i} for i in range(n)]
    return wandb_records(rows)


def test_a_torn_end_is_said_and_costs_only_itself(tmp_path):
    data = framed(many())
    for cut in (1, 5, 30):
        (tmp_path / "x").write_bytes(data[: -10 - cut])
        log = read(tmp_path / "x")
        assert log.step.tolist() == list(range(len(log)))
        assert 2995 <= len(log) <= 2999
        assert "damaged or cut" in log.remarks[0]


def test_a_damaged_block_is_left_out_and_counted(tmp_path):
    data = bytearray(framed(many()))
    assert len(data) > 4 * 32768
    data[2 * 32768 + 1000] ^= 1
    (tmp_path / "x").write_bytes(data)
    log = read(tmp_path / "x")
    assert 2000 < len(log) < 3000
    assert log.column("loss") == pytest.approx(1.0 + log.step)
    assert log.step[-1] == 2999
    assert log.remarks[0].startswith("eager: 1 damaged or cut records not read")


def test_a_gap_by_damage_makes_no_step_of_a_count_of_calls(tmp_path):
    rows = [{"loss": 1.0, "_step": n, "_timestamp": START + n} for n in range(3000)]
    data = bytearray(framed(wandb_records(rows)))
    data[2 * 32768 + 1000] ^= 1
    (tmp_path / "x").write_bytes(data)
    assert read(tmp_path / "x").axis == "unit"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "an empty file"),
        (REAL.read_bytes()[:7], "a file of wandb"),
        (b":W&B" + bytes(range(256)) * 300, "a file of wandb"),
        (framed([b"\x12" * 50, b"\xff" * 70000, b""]), "a file of wandb"),
        (b"SQLite format 3\0" + b"x" * 4000, "a damaged database"),
        (b"something else\n" * 9, "text of an unknown format"),
    ],
)
def test_other_bytes_are_one_error(data, why, tmp_path, capsys):
    (tmp_path / "run-x.wandb").write_bytes(data)
    assert main(["speed", str(tmp_path / "run-x.wandb")]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1


def test_names_are_printed_without_control_characters(tmp_path, capsys):
    name = "\x1b[31m../../x\x07"
    run = wandb_run(tmp_path, [{"loss": 1.0, "iter": 50 * n} for n in range(9)], name=name,
                    config={"kind": "pretrain", "a\x1bb": "\x07", "n": float("nan")})  # fmt: skip
    write.mlflow_database([(name, "\x1b", synthetic_log(n=9)), ("b", "", synthetic_log(n=9))],
                          tmp_path / "mlflow.db")  # fmt: skip
    for question in (["speed"], ["runs"], ["cells"], ["loss"]):
        assert main([*question, str(run), str(tmp_path / "mlflow.db")]) in (0, 1)
        output = capsys.readouterr()
        assert all(c.isprintable() or c == "\n" for c in output.out + output.err)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert set(names) == {"mlflow.db", "r.csv", "r.html", run.name}


def test_the_runs_of_a_database_are_told_apart_and_compared(tmp_path, capsys):
    runs = [("a", "0.1", synthetic_log(steps_per_s=1)), ("b", "0.2", synthetic_log(steps_per_s=2)),
            ("b", "0.2", synthetic_log(steps_per_s=2, seed=1))]  # fmt: skip
    write.mlflow_database(runs, tmp_path / "mlflow.db")
    logs = read_logs([str(tmp_path / "mlflow.db")])
    assert [log.name for log in logs] == ["a", "b-10000000", "b-20000000"]
    assert [log.config for log in logs] == [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.2}]
    assert logs[0].column("loss") == pytest.approx(runs[0][2].loss)
    assert measure_rate(logs[1], clock="wall").steps_per_s.value == pytest.approx(2, rel=0.01)
    assert main(["speed", str(tmp_path / "mlflow.db")]) == 0
    assert "b-10000000 against a: the effect of lr: 0.1 -> 0.2" in capsys.readouterr().out
    out = tmp_path / "runs.csv"
    assert main(["export", str(tmp_path / "mlflow.db"), "--to", "csv", "--out", str(out)]) == 0
    assert out.read_text().count("\n") == 901


def test_deleted_runs_nan_and_the_systems_own_steps_are_known(tmp_path):
    import sqlite3

    path = tmp_path / "mlflow.db"
    write.mlflow_database([("a", "x y", synthetic_log(n=4)), ("b", "1", synthetic_log(n=4))], path)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'b'")
        file.execute("UPDATE metrics SET value = 0, is_nan = 1 WHERE step = 100")
        file.execute(
            "INSERT INTO metrics SELECT run_uuid, 'system/gpu', 1, timestamp, 7, 0 FROM metrics"
        )
        file.execute("INSERT INTO metrics VALUES ('no such run', 'loss', 'text', NULL, 1, 0)")
        file.execute("INSERT INTO metrics VALUES (7, 'loss', 1, 1, 1, 0)")
        file.execute("INSERT INTO tags SELECT run_uuid, 'mlflow.source.git.commit', 'c' FROM runs")
    file.close()
    log = read(path)
    assert log.step.tolist() == [50, 100, 150, 200]
    assert log.events[0]["reason"] == "nan"
    assert log.config == {"lr": "x y", "mlflow.source.git.commit": "c"}


def test_another_database_is_named_as_such(tmp_path, capsys):
    import sqlite3

    with sqlite3.connect(tmp_path / "x.db") as file:
        file.execute("CREATE TABLE runs (distance)")
    file.close()
    assert main(["speed", str(tmp_path / "x.db")]) == 2
    assert "no run in it: a file of wandb or a database" in capsys.readouterr().err


def test_a_folder_of_files_is_a_run_whose_lines_are_those_of_its_loss(tmp_path):
    planted = synthetic_log(n=60)
    run = write.mlflow_folder(planted, tmp_path)
    with (run / "metrics" / "loss").open("a") as file:
        file.write(f"no metric\n{1e3 * START:.0f} 9.5 30")  # cut: 30 of 3050
    (run / "metrics" / "link").symlink_to("/dev/zero")
    (run / "metrics" / "system").mkdir()
    (run / "metrics" / "system" / "cpu").write_text("1700000000000 5 3\n")
    for path in (tmp_path, run, run / "meta.yaml"):
        log = read(path)
        assert (log.name, log.config) == ("eager", {"lr": 0.1})
        assert log.step.tolist() == planted.step.tolist()
        assert log.column("loss") == pytest.approx(planted.loss)
        assert log.line.tolist() == list(range(1, 61))
        assert log.source == run / "metrics" / "loss"
        assert measure_rate(log, clock="wall").steps_per_s.value == pytest.approx(0.5, rel=0.01)
    (run / "meta.yaml").write_text((run / "meta.yaml").read_text().replace("active", "deleted"))
    with pytest.raises(Unreadable, match="a folder without a log"):
        read_all([str(tmp_path)])


def test_a_meta_yaml_of_another_tool_hides_nothing(tmp_path):
    (tmp_path / "meta.yaml").write_text("package: {name: x}\n")
    (tmp_path / "metrics").mkdir()
    shutil.copy(REAL, tmp_path / "metrics" / "other-name.wandb")
    assert len(read(tmp_path)) == 8
