"""Hours and GPU-hours are those that the records can show."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from benchmarks.analysis_coverage.folders import START, Run, write_run
from runs.folder import RunFolder
from tests.analysis.conftest import Asked
from tests.analysis.planted.runs import RNG, falling, seconds
from tests.analysis.synthetic_runs import rewrite, rewrite_manifest, write_lines


def test_gpu_hours_count_the_ranks_of_each_attempt(tmp_path: Path, asked: Asked) -> None:
    """Eight ranks are eight times as fast, so that a step costs the same GPU-hours."""
    for name, ranks in (("a", 1), ("b", 8)):
        own = seconds(200)
        own[:100] /= ranks
        loss = falling(200) * np.exp(0.01 * RNG.standard_normal(200))
        planned = Run(seconds=own, loss=loss, attempts=(0, 100), starts=(START + 1000.0 * ranks,))
        run = write_run(tmp_path / name, planned)
        rewrite_manifest(run, partial(dict.update, ranks=ranks))
    [found] = asked("loss", "--by", "gpu_hours", tmp_path / "a", tmp_path / "b")["pairs"]
    assert found["ratio"] == pytest.approx(1.0, abs=0.02)
    assert [row.get("gpus") for row in asked("cost", tmp_path)] == [1, None]


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_nodes_clock_that_is_set_makes_no_time_of_day_a_measurement(
    tmp_path: Path, asked: Asked, capsys: pytest.CaptureFixture[str], jump: float
) -> None:
    """The seconds of training are right, and the time of day leaves them in the middle."""
    for name, later in (("a", 0.0), ("b", 9000.0)):
        run = Run(seconds=seconds(), loss=falling(), starts=(START + later,))
        write_run(tmp_path / name, run)
    rewrite(
        tmp_path / "b",
        lambda one: one | {"time": one["time"] + (jump if one.get("step", 0) > 600 else 0.0)},
    )
    said = f"the time of day jumps by {jump:,.0f} s at step 610"
    assert ["gpu_hours" in row for row in asked("cost", tmp_path)] == [True, False]
    assert main(["cost", str(tmp_path)]) == 0
    assert f"b: GPU-hours unknown: {said}" in capsys.readouterr().err
    runs = (tmp_path / "a", tmp_path / "b")
    [found] = asked("loss", "--by", "wall", *runs)["pairs"]
    assert (found["word"], said in found["why"]) == ("not compared", True)
    assert said in asked("speed", "--clock", "wall", *runs)[1]["why"]
    assert asked("speed", *runs)[1]["ratio"] == pytest.approx(1, abs=0.01)


def test_gpu_hours_of_two_models_stand_beside_their_names(tmp_path: Path, asked: Asked) -> None:
    run = write_run(tmp_path / "a", Run(seconds=np.ones(200), attempts=(0, 180)))
    rewrite_manifest(run, lambda first: first["placement"][0].update(gpu="NVIDIA H100"))
    [row] = asked("cost", run)
    # 180 and 20 records of 2.5 s, and a set-up of 15 s each.
    assert row["gpu"] == f"NVIDIA H100 ({465 / 3600:.3f} h) + NVIDIA A40 ({65 / 3600:.4f} h)"
    assert row["gpu_hours"] == pytest.approx((465 + 65) / 3600, rel=0.01)


def test_a_log_of_two_attempts_does_not_tell_how_long_they_waited(
    tmp_path: Path, asked: Asked
) -> None:
    """It died at step 1500 and went on from step 1000, ten minutes later."""
    steps = [(step, 0.0) for step in range(5, 1505, 5)]
    steps += [(step, 1250.0 + 600.0) for step in range(1005, 2005, 5)]
    rows = [
        {"step": step, "loss": 1 / step, "time": START + later + step / 2} for step, later in steps
    ]
    write_lines(tmp_path / "a.jsonl", rows)
    [row] = asked("cost", tmp_path / "a.jsonl", "--set", "gpus=8")
    assert "gpu_hours" not in row
    [reached] = asked("target", "--target", "loss<=0.0006", tmp_path / "a.jsonl")["groups"]
    assert reached["minutes"] > 10
    assert "availability_gain" not in reached


def test_local_times_at_the_end_of_summer_time_tell_no_time(tmp_path: Path, asked: Asked) -> None:
    rows = [
        {"step": n, "loss": 1 / n, "time": START + n - (3600.0 if n > 500 else 0.0)}
        for n in range(1, 1000)
    ]
    write_lines(tmp_path / "a.jsonl", rows)
    [row] = asked("cost", tmp_path / "a.jsonl")
    assert "minutes" not in row


def test_an_attempt_that_held_its_gpus_and_never_started_costs_them(
    tmp_path: Path, asked: Asked
) -> None:
    """It hung in its start for half an hour, before one that trained."""
    run = write_run(tmp_path / "a", Run(seconds=np.ones(100), attempts=(0, 1)))
    rewrite_manifest(run, lambda first: first.update(began=first["began"] - 1800.0))
    kept = [one for one in RunFolder(run).records() if one["attempt"] == 2]
    write_lines(run / "metrics.jsonl", kept)
    [row] = asked("cost", run)
    assert row["minutes"] == pytest.approx((1800 + 15 + 2.5 + 15 + 99 * 2.5) / 60, rel=0.01)
    assert row["gpu_hours"] == pytest.approx(row["minutes"] / 60)
    assert row["useful"] < 0.15


def test_the_wait_for_a_requeue_is_no_time_with_a_gpu_and_needs_no_common_clock(
    tmp_path: Path, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second attempt began ten hours later, or by the clock of its node an hour before."""
    for name, later in (("a", 36_000.0), ("b", -3600.0)):
        run = write_run(
            tmp_path / name,
            Run(seconds=np.ones(200), loss=falling(200), attempts=(0, 100), starts=(START, START)),
        )
        moved = {1: 0.0, 2: later}
        rewrite(run, lambda one, by=moved: one | {"time": one["time"] + by[one["attempt"]]})
        manifest = json.loads((run / "manifest.json").read_text())
        for of in ("began", "ended"):
            manifest["attempts"][1][of] += later
        (run / "manifest.json").write_text(json.dumps(manifest))
    for row in asked("cost", tmp_path):
        assert row["minutes"] == pytest.approx((2 * 15 + 500) / 60, rel=0.01)
        assert row["gpu_hours"] == pytest.approx(row["minutes"] / 60)
        assert row["useful"] == pytest.approx(0.98 * 500 / 530, rel=0.01)
    main(["target", str(tmp_path), "--target", "loss<=.35"])
    assert "b: an attempt began before the one before it ended" in capsys.readouterr().err


def test_a_branch_costs_what_it_did_itself(tmp_path: Path, asked: Asked) -> None:
    """Its clocks go on from those of the trunk."""
    whole = write_run(tmp_path / "a", Run(seconds=np.ones(200), loss=falling(200)))
    own = [one for one in RunFolder(whole).records() if one.get("step", 0) > 1000]
    began = START + 15.0 + 250.0
    started = {"time": began, "attempt": 1, "event": "started", "step": 1000}
    write_lines(whole / "metrics.jsonl", [started, *own])
    rewrite_manifest(whole, lambda first: first.update(began=began - 15.0))
    [row] = asked("cost", whole)
    assert row["minutes"] == pytest.approx(265 / 60, rel=0.01)
    assert row["useful"] == pytest.approx(0.98 * 250 / 265, rel=0.01)
    [reached] = asked("target", "--target", "loss<=.29", whole)["groups"]
    assert reached["minutes"] > 265 / 60  # with its trunk
