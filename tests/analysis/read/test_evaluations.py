"""An evaluation, in whatever format, is no training time and no training loss."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.measure.arms import Arm
from analysis.measure.rate import measure_rate
from analysis.measure.speed import speed_contrast
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from tests.analysis.foreign_logs import START

EVERY, ROWS, STEPS_PER_S, EVAL_S = 10, 120, 2.0, 15.0


def planted(path: Path, *, form: str, evaluate: int = 5) -> RunLog:
    """Return a log with an evaluation of 15 seconds after every so many rows of training."""
    noise = np.random.default_rng(0).normal(1, 0.01, ROWS)
    now, rows = START, list[dict[str, float | str]]()
    for number in range(1, ROWS + 1):
        now += EVERY / STEPS_PER_S * noise[number - 1]
        row: dict[str, float | str] = {"step": EVERY * number, "loss": 3 / number, "time": now}
        is_evaluated = number % evaluate == 0
        now += EVAL_S if is_evaluated else 0
        if form == "beside" and is_evaluated:
            row |= {"val_loss": 4 / number, "time": now}
        rows.append(row)
        if form == "after" and is_evaluated:
            rows.append({"step": EVERY * number, "val_loss": 4 / number, "time": now})
        if form == "split":
            rows[-1]["split"] = "train"
            if is_evaluated:
                row = {"step": EVERY * number + 1, "loss": 4 / number, "time": now}
                rows.append(row | {"split": "val"})
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif path.suffix == ".csv":
        names = ["step", "split", "loss", "val_loss", "time"]
        cells = [",".join(str(row.get(name, "")) for name in names) for row in rows]
        path.write_text("\n".join([",".join(names), *cells]))
    else:
        write_events(path, rows)
    [log] = read_logs([str(path)])
    return log


def write_events(folder: Path, rows: list[dict[str, float | str]]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for row in rows:
        for name in row.keys() & {"loss", "val_loss", "loss vs samples"}:
            value = Summary.Value(tag=name.replace("_", "/"), simple_value=row[name])
            event = Event(wall_time=row["time"], step=row["step"], summary=Summary(value=[value]))
            writer.add_event(event)
    writer.close()


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize("form", ["beside", "after", "split"])
def test_evaluations_are_left_out_of_the_wall_clock(form, suffix, tmp_path):
    log = planted(tmp_path / f"x.{suffix}", form=form)
    rate = measure_rate(log, clock="wall")
    assert rate.rate.value == pytest.approx(STEPS_PER_S, rel=0.02)
    assert rate.rate.low is not None
    assert log.last("loss") == pytest.approx(3 / ROWS)
    assert len(log.evaluations) == ROWS // 5


def test_evaluations_among_events_are_left_out_of_the_wall_clock(tmp_path):
    rate = measure_rate(planted(tmp_path / "events", form="after"), clock="wall")
    assert rate.rate.value == pytest.approx(STEPS_PER_S, rel=0.02)
    assert rate.rate.low is not None


@pytest.mark.parametrize(("form", "suffix"), [("beside", "jsonl"), ("after", "csv"), ("after", "")])
def test_an_evaluation_in_every_interval_counts_and_is_told(form, suffix, tmp_path):
    path = tmp_path / (f"x.{suffix}" if suffix else "events")
    log = planted(path, form=form, evaluate=1)
    assert measure_rate(log, clock="wall").rate.low is None
    assert log.remarks[0].endswith("every interval holds an evaluation, which its time counts")
    sides = [Arm(runs=(measure_rate(one, clock="wall"),)) for one in (log, log)]
    assert "evaluations included" in speed_contrast(*sides).remarks
    without = replace(log, facts={})
    sides[1] = Arm(runs=(measure_rate(without, clock="wall"),))
    assert speed_contrast(*sides).is_refused


def test_events_without_a_version_are_read_and_values_over_samples_are_not(tmp_path):
    rows = [{"step": n, "time": 1.7e9 + n, "loss": 9 / n} for n in range(1, 31)]
    rows += [{"step": 32 * n, "time": 1.7e9 + n, "loss vs samples": 9 / n} for n in range(1, 31)]
    write_events(tmp_path / "events", rows)
    [path] = (tmp_path / "events").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[int.from_bytes(data[:8], "little") + 16 :])
    [log] = read_logs([str(path)])
    assert (len(log), log.last("loss")) == (30, pytest.approx(0.3))


def test_the_folder_of_added_scalars_says_whose_loss_it_is(tmp_path):
    rows: list[dict[str, float | str]] = [
        {"step": step, "loss": 3 / step, "time": START + step} for step in range(1, 31)
    ]
    for folder in ("loss_train", "loss_val"):
        write_events(tmp_path / folder, rows)
    trained, evaluated = read_logs([str(tmp_path)])
    assert (trained.last("loss"), trained.evaluations) == (pytest.approx(0.1), ())
    assert (evaluated.last("loss"), evaluated.evaluations[-1]["loss/val"]) == (
        None,
        pytest.approx(0.1),
    )
