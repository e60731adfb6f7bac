"""Runs in the files of wandb are read in place, on the trainer's own steps."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs
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
    rows = [{"loss": 1.0, "global_step": n} for n in range(5)]
    log = read(wandb_run(tmp_path, rows, code=1))
    assert log.facts["commit"] == "0123456789abcdef"
    assert log.facts["placement"] == [{"gpu": "NVIDIA A100", "node": "gpu07"}]
    assert "ranks" not in log.facts
    assert log.remarks == (
        "eager: its machine has 8 GPUs; --set gpus=N says how many ran",
        "eager: it ended with exit code 1",
    )


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
    log = read(wandb_run(tmp_path, [*rows, {"eval/loss": 2.0}, {"lr": 3.0}, {"lr": 3.0}]))
    assert (len(log), log.evaluations[-1]["eval/loss"], log.evaluations[-1]["step"]) == (5, 2, 4)
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
    shutil.copytree(run, tmp_path / "again")
    for question in (["speed"], ["runs"], ["cells"], ["loss"]):
        assert main([*question, str(tmp_path)]) in (0, 1)
        output = capsys.readouterr()
        assert all(c.isprintable() or c == "\n" for c in output.out + output.err)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert set(names) == {"again", "r.html", run.name}
