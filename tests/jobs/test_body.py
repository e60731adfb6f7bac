"""The job body without Slurm: runs are begun, stopped, resumed, refused."""

import fcntl
import os
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis.measure.time_breakdown import time_breakdown
from analysis.read.run_folder import read_ours
from runs.attempt.open import open_attempt
from runs.folder import RunFolder, find_runs
from tests.real_runs import (
    DIGITS,
    TINY,
    body,
    clean_environment,
    continued,
    events,
    losses,
    newest_run,
    processes,
    rank_processes,
)

Begin = Callable[..., subprocess.Popen[str]]
LONG = (*TINY, "train.steps=100000", "log.every=1", "checkpoint.every=100000")


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start bodies in process groups of their own, as a terminal does; end them with the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path, **changes: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            # A shell cannot trap a signal ignored at its start, like INT in a background job.
            ["env", "--default-signal=INT", "bash", "jobs/pretrain.sbatch", *map(str, arguments)],
            env=clean_environment(LOGS=str(tmp_path), **changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            for run in find_runs(tmp_path):
                run.stop_file.touch()
            process.communicate(timeout=60)


def wait_for_step(logs: Path, step: int) -> RunFolder:
    """Wait until the only run in `logs` has recorded `step`; return it."""
    for _ in range(600):
        for run in find_runs(logs):
            if any(record.get("step", 0) >= step for record in run.records()):
                return run
        time.sleep(0.1)
    raise AssertionError(f"no run reached step {step}")


def test_a_run_on_two_local_nodes_is_done_and_leaves_a_complete_folder(tmp_path: Path) -> None:
    config = tmp_path / "my 'odd\" $(touch x) name.yaml"
    config.write_text(DIGITS.read_text())
    logs = tmp_path / "logs of me"
    keys = [*TINY, "train.steps=6", "log.every=2", "checkpoint.every=4"]
    done = body(config, *keys, "log.tensorboard=true", logs=logs, LOCAL_NODES="2")
    run = newest_run(logs)
    assert run.name.startswith("my 'odd\" $(touch x) name-")
    assert f"done: {run.path}" in done.stdout
    assert "step 6/6" in done.stdout
    assert done.stdout.count(f"starting torch on {os.uname().nodename}: ranks ") == 2
    assert events(run) == ["started", "saved", "saved", "done"]
    assert list(losses(run)) == [2, 4, 6]
    entry = run.manifest()["attempts"][0]
    assert [place["rank"] for place in entry["placement"]] == [0, 1]
    assert entry["ranks"] == 2
    assert entry["training_flops_per_image"] > 0
    assert (run.samples / "step-000000006.png").stat().st_size > 100
    assert list(run.tensorboard.iterdir())
    for rank in (0, 1):
        log = run.attempt(1) / "ranks" / f"rank-{rank:05d}.log"
        assert "step 6/6" in log.read_text()
    assert not Path("x").exists()


def expect_hours_that_add_up(run: RunFolder) -> None:
    """Assert that the time breakdown covers the jobs from begin to end, across attempts."""
    breakdown = time_breakdown(read_ours(run))
    held = sum(entry["ended"] - entry["began"] for entry in run.manifest()["attempts"])
    seconds = breakdown.seconds
    parts = sum(value for name, value in seconds.items() if name not in ("queue", "between"))
    assert breakdown.allocated_s == pytest.approx(held, rel=0.01)
    assert parts == pytest.approx(held, rel=0.01)
    assert seconds["setup"] > seconds["train"] > 0
    assert seconds["between"] > 0


def test_a_done_run_submitted_again_ends_at_once_and_continues_with_more_steps(
    tmp_path: Path,
) -> None:
    body(DIGITS, *TINY, "train.steps=4", logs=tmp_path)
    run = newest_run(tmp_path)
    assert "done already" in body(run.path, logs=tmp_path).stderr
    assert run.attempts() == [1]
    body(run.path, "train.steps=6", logs=tmp_path)
    assert run.attempts() == [1, 2]
    assert events(run)[-1] == "done"
    assert max(losses(run)) == 6
    expect_hours_that_add_up(run)


LONG_WAYS = [pytest.param(how, marks=pytest.mark.long) for how in ("STOP", "TERM")]


@pytest.mark.parametrize("how", ["Ctrl-C", *LONG_WAYS])
def test_a_stopped_run_is_saved_and_can_be_resumed(begin: Begin, tmp_path: Path, how: str) -> None:
    process = begin(DIGITS, *LONG, LOCAL_NODES="2")
    run = wait_for_step(tmp_path, 3)
    if how == "STOP":
        run.stop_file.touch()
    elif how == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    else:
        os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == {"STOP": 0, "Ctrl-C": 130, "TERM": 0}[how], output
    assert events(run)[-2:] == ["saved", "stopped"], output
    stopped_at = max(losses(run))
    steps = stopped_at + 2
    continued(run, f"train.steps={steps}")
    assert events(run)[-1] == "done"
    assert sorted(losses(run)) == list(range(1, steps + 1))


def test_three_ctrl_c_end_a_starting_run_at_once_and_each_says_what_it_does(
    begin: Begin, tmp_path: Path
) -> None:
    process = begin(DIGITS, *LONG)
    while not list(tmp_path.glob("*/attempts/001/output.log")):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)

    def press() -> None:
        for _ in range(3):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.2)

    press()
    try:
        output, _ = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        press()  # on a busy machine, one can come before the job listens
        output, _ = process.communicate(timeout=60)
    said = [output.find(f"{word}") for word in ("saving, then", "leaving without", "killing the")]
    assert sorted(said) == said, output
    assert said[0] >= 0, output
    assert process.returncode == 130, output
    run = newest_run(tmp_path)
    assert events(run) == ["failed"], output
    assert processes(run, "train") == []


def test_an_older_attempt_leaves_without_a_traceback(begin: Begin, tmp_path: Path) -> None:
    process = begin(DIGITS, *LONG, LOCAL_NODES="2")
    run = wait_for_step(tmp_path, 1)
    assert open_attempt(run.path, []) is not None
    output, _ = process.communicate(timeout=120)
    assert f"superseded: {run.path}" in output
    assert "a newer attempt has begun" in output
    assert "Traceback" not in output, output


def test_a_pause_is_saved_under_its_own_name(begin: Begin, tmp_path: Path) -> None:
    process = begin(DIGITS, *LONG)
    run = wait_for_step(tmp_path, 3)
    os.kill(process.pid, signal.SIGUSR1)
    output, _ = process.communicate(timeout=120)
    assert events(run)[-2:] == ["saved", "paused"], output


def test_a_rank_that_is_killed_fails_the_run_with_a_reason(begin: Begin, tmp_path: Path) -> None:
    process = begin(DIGITS, *LONG)
    run = wait_for_step(tmp_path, 1)
    os.kill(rank_processes(run)[-1], signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    last = list(run.records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "killed")


@pytest.mark.parametrize("killed", ["torchrun", "body"])
def test_no_rank_outlives_its_torchrun_or_the_body(
    begin: Begin, tmp_path: Path, killed: str
) -> None:
    process = begin(DIGITS, *LONG)
    run = wait_for_step(tmp_path, 1)
    os.kill(processes(run, "torchrun")[0] if killed == "torchrun" else process.pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    for _ in range(100):
        if not processes(run, "train"):
            break
        time.sleep(0.1)
    assert processes(run, "train") == []
    assert events(run)[1:] == (["failed"] if killed == "torchrun" else []), output


def _take_terminal() -> None:
    """Make stdin the terminal of a new session, which hangs up also if pytest runs under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_closed_terminal_saves_and_stops_the_run(tmp_path: Path) -> None:
    master, slave = os.openpty()
    process = subprocess.Popen(
        ["bash", "jobs/pretrain.sbatch", str(DIGITS), *LONG],
        env=clean_environment(LOGS=str(tmp_path)),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(slave)
    while not any("loss" in record for run in find_runs(tmp_path) for record in run.records()):
        assert process.poll() is None
        if select.select([master], [], [], 0.1)[0]:
            os.read(master, 2**16)
    run = newest_run(tmp_path)
    os.close(master)
    process.wait(timeout=120)
    assert events(run)[-2:] == ["saved", "stopped"]
    assert processes(run, "train") == []
    assert f"stopped: {run.path}" in (run.attempt(1) / "output.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: "),
        (["nowhere.yaml"], "nowhere.yaml: no such file"),
        ([DIGITS, "train.global_batch=7", "resources.ranks_per_node=2"], "does not divide over 2"),
    ],
)
def test_a_config_that_cannot_run_is_refused_with_exit_2_before_a_folder_is_made(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = body(*arguments, logs=tmp_path / "logs", check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert not (tmp_path / "logs").exists()


def test_a_broken_data_set_fails_the_run_with_its_name_and_reason(tmp_path: Path) -> None:
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "1.png").write_bytes(b"no image")
    keys = [f"data.path={tmp_path / 'images'}", "data.source=folder", "data.held_out=0"]
    keys += ["data.workers=2"]
    done = body(DIGITS, *TINY, *keys, logs=tmp_path / "logs", check=False)
    assert done.returncode == 1
    last = list(newest_run(tmp_path / "logs").records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "data")
    assert "1.png: not a readable image" in last["message"]
    assert "1.png: not a readable image" in done.stderr
