"""The run of somebody's own program is read from its output, attempt by attempt."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.measure.differences import causes, differences
from analysis.measure.rate import measure_rate
from analysis.read.options import ReadOptions, reading_with
from analysis.read.run_folder import read_ours
from configs.yaml12 import dump_yaml
from runs.folder import RunFolder

CONFIG = {"kind": "command", "run": "python train.py --lr {lr}", "params": {"lr": 0.1}}


def run_with(folder: Path, *logs: str, seconds: float = 0.5, **keys: Any) -> RunFolder:
    """Write a run with a log per attempt, whose lines arrived every `seconds`."""
    run = RunFolder(folder)
    run.path.mkdir(parents=True)
    run.config_file.write_text(dump_yaml(CONFIG | keys))
    for number, log in enumerate(logs, start=1):
        run.attempt(number).mkdir(parents=True)
        (run.attempt(number) / "output.log").write_text(log)
        ends = np.cumsum([len(line) + 1 for line in log.split("\n")[:-1]])
        pairs = [f"{end} {1000 * number + n * seconds:.3f}\n" for n, end in enumerate(ends)]
        (run.attempt(number) / "arrivals.txt").write_text("".join(pairs))
    return run


def lines(first: int, last: int, form: str = "step {} loss {}") -> str:
    return "loading\n" + "".join(form.format(n, 1 / n) + "\n" for n in range(first, last + 1))


def test_a_log_without_a_clock_has_the_times_at_which_its_lines_arrived(tmp_path: Path) -> None:
    log = read_ours(run_with(tmp_path / "run", lines(1, 40)))
    assert log.step.tolist() == list(range(1, 41))
    assert log.column("loss")[3] == 0.25
    assert log.column("time")[:2].tolist() == [1000.5, 1001.0]
    rate = measure_rate(log, clock=None).steps_per_s
    assert rate is not None
    # Readings of a clock with a grid are moved by up to a unit of it.
    assert rate.value == pytest.approx(2, rel=0.01)
    assert log.config is not None
    assert log.config["params.lr"] == 0.1


def test_evaluations_have_the_times_of_their_steps(tmp_path: Path) -> None:
    form = "step {0} loss {1}\neval step {0} val_acc {1}"
    log = read_ours(run_with(tmp_path / "run", lines(1, 40, form)))
    assert [one["time"] for one in log.evaluations[:2]] == log.column("time")[:2].tolist()


def test_a_log_with_a_clock_keeps_it(tmp_path: Path) -> None:
    form = "iter {}: loss {:.4f}, time 50.00ms, mfu 1.00%"
    log = read_ours(run_with(tmp_path / "run", lines(1, 40, form)))
    assert "time" not in log.values
    rate = measure_rate(log, clock=None).steps_per_s
    assert rate is not None
    assert rate.value == pytest.approx(20)


def test_what_slurm_wrote_between_two_lines_moves_no_time(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", lines(1, 3))
    log = run.attempt(1) / "output.log"
    # Two lines in one piece, and one by srun, which arrives with the next piece.
    log.write_text("step 1 loss 1.0\nstep 2 loss 0.5\nsrun: error\nstep 3 loss 0.3\n")
    (run.attempt(1) / "arrivals.txt").write_text("32 7.0\n60 9.5\n")
    assert read_ours(run).column("time").tolist() == [7.0, 7.0, 9.5]


def test_steps_that_a_resume_repeats_are_those_of_the_newest_attempt(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", lines(1, 10), lines(6, 20))
    log = read_ours(run)
    assert log.step.tolist() == list(range(1, 21))
    assert log.attempt.tolist() == [1] * 5 + [2] * 15
    assert log.column("time")[5] == 2000.5
    assert log.source == run.attempt(2) / "output.log"


def test_a_loss_that_is_not_printed_is_read_from_the_longest_log_that_was_kept(
    tmp_path: Path,
) -> None:
    run = run_with(tmp_path / "run", "epoch 1\n")
    kept = run.attempt(1) / "logs" / "lightning"
    kept.mkdir(parents=True)
    for name, last in (("train", 30), ("validation", 4)):
        rows = [f"{n},{2 / n},{n}" for n in range(1, last)]
        (kept / f"{name}.csv").write_text("step,objective,time\n" + "\n".join(rows) + "\n")
    with reading_with(ReadOptions(columns={"loss": "objective"})):
        log = read_ours(run)
    assert log.step.tolist() == list(range(1, 30))
    assert log.column("loss")[0] == 2.0
    assert "2 runs in its logs; read the longest" in log.remarks[-1]


def test_a_loss_that_is_printed_is_read_before_any_other(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", lines(1, 5))
    (run.attempt(1) / "logs").mkdir()
    (run.attempt(1) / "logs" / "log.csv").write_text("step,loss\n1,7\n2,7\n")
    assert read_ours(run).column("loss")[0] == 1.0


def test_a_pattern_reads_lines_of_any_form(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", lines(1, 9, "@{}/L{}"))
    with reading_with(ReadOptions(pattern=r"@(?P<step>\d+)/L(?P<loss>\S+)")):
        assert read_ours(run).step.tolist() == list(range(1, 10))


def test_a_run_without_a_readable_log_says_where_it_looked(tmp_path: Path) -> None:
    log = read_ours(run_with(tmp_path / "run", "hello\n"))
    assert len(log) == 0
    assert "docs/own-script.md" in log.remarks[-1]
    assert "output.log" in log.remarks[-1]


def test_a_parameter_is_a_difference_of_loss_and_clock(tmp_path: Path) -> None:
    a = read_ours(run_with(tmp_path / "a", lines(1, 5)))
    b = read_ours(run_with(tmp_path / "b", lines(1, 5), params={"lr": 0.2}))
    assert [str(one) for one in causes(differences(a, b), of="loss")] == ["params.lr: 0.1 -> 0.2"]
    assert [one.name for one in causes(differences(a, b), of="clock")] == ["params.lr"]
