"""The replay of published runs: what it reads, and what stopping early spares and keeps."""

import json
from pathlib import Path

import numpy as np

from benchmarks.stopping_replay import main, read_run, read_studies, replay


def write_run(
    path: Path,
    *,
    seconds: float,
    batch: int = 8,
    status: str = "success",
    unit: str = "epoch_num",
) -> None:
    events = [
        ("global_batch_size", batch, 0.0, {}),
        ("run_start", None, 100.0, {}),
        ("eval_accuracy", 0.7, 90 + seconds, {unit: 4.5}),
        ("run_stop", None, 100 + seconds, {"status": status}),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(
            ":::MLLOG "
            + json.dumps({"key": key, "value": value, "time_ms": 1e3 * at, "metadata": metadata})
            + "\n"
            for key, value, at, metadata in events
        )
    )


def test_a_run_that_did_not_reach_its_target_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "a", seconds=50)
    write_run(tmp_path / "b", seconds=50, status="aborted")
    run = read_run(tmp_path / "a")
    assert (run.batch, run.time, run.rate) == (8, np.log(50), np.log(4.5 / 50))
    assert read_run(tmp_path / "b") is None


def test_clear_differences_take_few_runs_and_noise_is_no_verdict() -> None:
    rng = np.random.default_rng(0)
    cells = [shift + 0.01 * rng.standard_normal(10) for shift in (0.0, 0.5, -0.4, 0.3, 0.2)]
    made, verdicts, final, shared = replay([cells])
    assert (verdicts, final, shared) == (4, 4, 4)
    assert made <= 25
    alike = [0.3 * rng.standard_normal(10) for _ in range(5)]
    assert replay([alike])[1:] == (0, 0, 0)


def test_a_cell_ends_when_both_quantities_are_settled_and_they_share_the_error() -> None:
    rng = np.random.default_rng(1)
    clear, close = (
        [shift + 0.02 * rng.standard_normal(10) for shift in (0.0, far, far)] for far in (1, 0.04)
    )
    alone, slower = replay([clear])[0], replay([close])
    both = replay([clear, close])
    assert alone < both[0]
    assert both[0] >= slower[0]
    assert both[1:4] == (2, 2, 2)


def test_systems_are_compared_by_benchmark_and_batch(tmp_path: Path, capsys) -> None:
    for system, slower in (("x", 1.0), ("y", 2.0)):
        for n in range(5):
            file = tmp_path / "lab" / "results" / system / "resnet" / f"result_{n}.txt"
            write_run(file, seconds=100 * slower * 1.01**n)
    assert main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "resnet" in out
    assert "10 logs were read" in out
    assert "time: runs of a system scatter by 1.5" in out
    assert main([str(tmp_path / "lab")]) == 2


def test_systems_with_other_units_of_progress_are_no_study(tmp_path: Path) -> None:
    for system, unit in (("x", "epoch_num"), ("y", "samples_count")):
        for n in range(5):
            file = tmp_path / "lab" / "results" / system / "resnet" / f"result_{n}.txt"
            write_run(file, seconds=100 * 1.01**n, unit=unit)
    assert read_studies(tmp_path) == {}
