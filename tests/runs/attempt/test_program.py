"""A program of a user's own is run, told to pause or stop, and its end is recorded."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from configs.yaml12 import dump_yaml
from runs.attempt.close import close_attempt
from runs.attempt.open import open_attempt
from runs.attempt.program import run_program
from runs.folder import RunFolder


@pytest.fixture(autouse=True)
def keep_handlers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    numbers = (signal.SIGUSR1, signal.SIGTERM, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def opened(tmp_path: Path, script: str, **keys: Any) -> Path:
    """Write a program and its config, and claim an attempt."""
    (tmp_path / "train.py").write_text(script)
    tree = {"kind": "command", "run": f"{sys.executable} train.py", **keys}
    (tmp_path / "my.yaml").write_text(dump_yaml(tree))
    attempt = open_attempt(tmp_path / "my.yaml", [], kind="command")
    assert attempt is not None
    return attempt


def again(attempt: Path) -> Path:
    """Claim the next attempt at the same run."""
    following = open_attempt(attempt.parent.parent, [], kind="command")
    assert following is not None
    return following


def ended(attempt: Path) -> dict[str, Any]:
    """Run the attempt, close it, and return its last event and whether it would be requeued."""
    verdict = close_attempt(attempt, status=run_program(attempt))
    lines = (attempt.parent.parent / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1]) | {"requeue": verdict.requeue, "exit": verdict.exit_code}


def output(attempt: Path) -> str:
    return (attempt / "output.log").read_text()


HOSTILE = "$(touch hacked); `id` 'a' \"b\" {seed} \\ * \n~"
PRINT = "import json, sys; print(json.dumps(sys.argv[1:]))\n"


@pytest.mark.parametrize("setup", [[], ["export MINE=1", ": a 'quoted' line"]])
def test_a_value_reaches_the_program_as_it_is(tmp_path: Path, setup: list[str]) -> None:
    run = f"{sys.executable} train.py 'two words' --text={{text}} {{{{kept}}}} {{flag}}"
    keys = {"run": run, "params": {"text": HOSTILE, "flag": True}, "setup": setup}
    attempt = opened(tmp_path, PRINT, **keys)
    assert ended(attempt)["event"] == "done"
    assert json.loads(output(attempt)) == ["two words", f"--text={HOSTILE}", "{kept}", "true"]
    assert not list(tmp_path.rglob("hacked"))


def test_a_setup_line_that_fails_ends_the_attempt_before_the_program(tmp_path: Path) -> None:
    attempt = opened(tmp_path, PRINT, setup=["source /no/such/venv/bin/activate"])
    last = ended(attempt)
    assert (last["event"], last["reason"], last["exit"]) == ("failed", "crash", 1)
    assert "No such file" in output(attempt)


def test_variables_of_ditbench_do_not_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "OMP_NUM_THREADS", "MINE"):
        monkeypatch.setenv(name, "3")
    names = '"PYTHONPATH", "OMP_NUM_THREADS", "MINE"'
    attempt = opened(tmp_path, f"import os; print([os.environ.get(n) for n in ({names})])\n")
    ended(attempt)
    assert output(attempt) == "[None, None, '3']\n"


SAVES = """\
import pathlib, signal, sys, time
saved = pathlib.Path(sys.argv[1])
if len(sys.argv) > 2:
    sys.exit(print("resumed from", sys.argv[2]))
def save(*_):
    saved.write_text("x")
    sys.exit(0)
signal.signal(signal.{}, save)
print("up")
time.sleep(60)
"""
RUN = f"{sys.executable} train.py {{output}}/last"


def when_up(attempt: Path, action: Any) -> threading.Thread:
    def act() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and "up" not in output(attempt):
            time.sleep(0.02)
        action()

    (attempt / "output.log").touch()
    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.parametrize(("key", "sent"), [(None, "SIGTERM"), ("USR2", "SIGUSR2")])
@pytest.mark.parametrize("by", ["signal", "file"])
def test_the_warning_of_the_limit_is_passed_on_and_the_next_attempt_resumes(
    tmp_path: Path, key: str | None, sent: str, by: str
) -> None:
    keys = {"run": RUN, "resume": f"{RUN} {{output}}/last", "signal": key}
    attempt = opened(tmp_path, SAVES.format(sent), **keys)
    warn = (
        (lambda: os.kill(os.getpid(), signal.SIGUSR1))
        if by == "signal"
        else (attempt / "PAUSE").touch
    )
    thread = when_up(attempt, warn)
    last = ended(attempt)
    thread.join()
    assert (last["event"], last["requeue"]) == ("paused", True)
    following = again(attempt)
    assert ended(following)["event"] == "done"
    run = RunFolder(attempt.parent.parent).path
    assert output(following) == f"resumed from {run}/output/last\n"


@pytest.mark.parametrize("by", ["STOP of the run", "STOP of the attempt", "signal"])
def test_a_request_to_stop_ends_the_program_and_is_not_requeued(tmp_path: Path, by: str) -> None:
    attempt = opened(tmp_path, SAVES.format("SIGTERM"), run=RUN, resume=f"{RUN} again")
    stop = {
        "STOP of the run": (attempt.parent.parent / "STOP").touch,
        "STOP of the attempt": (attempt / "STOP").touch,
        "signal": lambda: os.kill(os.getpid(), signal.SIGTERM),
    }[by]
    thread = when_up(attempt, stop)
    last = ended(attempt)
    thread.join()
    assert (last["event"], last["requeue"]) == ("stopped", False)


def test_an_exit_code_asks_for_a_requeue_until_three_attempts_saved_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import sys\nif len(sys.argv) > 1: open(sys.argv[1], 'w')\nsys.exit(85)\n"
    assert ended(opened(tmp_path, script, run=RUN, requeue_code=85))["requeue"]
    lost = opened(tmp_path, script, requeue_code=85)
    assert ended(lost)["requeue"]
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    lost = again(lost)
    assert ended(lost)["requeue"]
    last = ended(again(lost))
    assert (last["event"], last["reason"], last["requeue"]) == ("failed", "timeout", False)


def test_each_piece_of_output_has_its_time(tmp_path: Path) -> None:
    script = "import time\nprint('a')\ntime.sleep(0.4)\nprint('b' * 9)\n"
    attempt = opened(tmp_path, script)
    ended(attempt)
    pairs = [line.split() for line in (attempt / "arrivals.txt").read_text().splitlines()]
    time_of = {int(size): float(at) for size, at in pairs}
    assert 0.3 < time_of[12] - time_of[2] < 5


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("left", ["sleep 60", "while :; do echo x; sleep .1; done"])
def test_what_a_program_leaves_behind_ends_with_it_and_a_late_stop_changes_nothing(
    tmp_path: Path, left: str
) -> None:
    child = f"subprocess.Popen(['bash', '-c', {left!r}]).pid"
    script = f"import os, subprocess\nprint(os.getpid(), {child})\nprint('up')\n"
    attempt = opened(tmp_path, script)

    def pids() -> list[int]:
        (line,) = re.findall(r"^\d+ \d+$", output(attempt), re.M)
        return [int(word) for word in line.split()]

    def stop_later() -> None:
        while is_alive(pids()[0]):
            time.sleep(0.02)
        (attempt / "STOP").touch()

    thread = when_up(attempt, stop_later)
    began = time.monotonic()
    assert ended(attempt)["event"] == "done"
    assert time.monotonic() - began < 30
    thread.join()
    assert not is_alive(pids()[1])


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], None]]:
    """Return a function that mounts a file system of 64 kB over a folder."""
    mounted: list[Path] = []

    def put(folder: Path) -> None:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("only root may mount a small file system here")
        mounted.append(folder)

    yield put
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize(("status", "end"), [(0, ("done", None)), (1, ("failed", "disk"))])
def test_a_full_disk_ends_the_log_and_not_the_program(
    tmp_path: Path,
    small_disk: Callable[[Path], None],
    status: int,
    end: tuple[str, str | None],
) -> None:
    script = f"import sys\nprint('x' * 300_000)\nprint('y' * 300_000)\nsys.exit({status})\n"
    attempt = opened(tmp_path, script)
    small_disk(attempt)
    last = ended(attempt)
    assert (last["event"], last.get("reason")) == end
    assert len(output(attempt)) <= 2**16


def test_a_program_ends_with_the_process_that_runs_it(tmp_path: Path) -> None:
    script = "import os, time\nprint(os.getpid(), 'up', flush=True)\ntime.sleep(60)\n"
    attempt = opened(tmp_path, script)
    command = [sys.executable, "-m", "runs", "run", str(attempt)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path.cwd())})
    when_up(attempt, process.kill).join()
    process.wait()
    program = int(output(attempt).split()[0])
    deadline = time.monotonic() + 10
    while is_alive(program) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(program)
