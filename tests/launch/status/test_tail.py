"""`tail` follows a run from the queue to its end."""

import threading
import time
from pathlib import Path

import pytest

from configs.load import load, to_tree
from launch.slurm.client import Refused
from launch.status import tail
from launch.status.tail import follow
from runs.folder import RunFolder, make_run
from runs.jobs import save_script, scripts_folder
from tests.launch.conftest import DIGITS


@pytest.fixture
def run(site: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(tail, "POLL_S", 0.01)
    run = make_run("digits", to_tree(load(DIGITS)))
    scripts_folder(run).mkdir()
    save_script(run, "7", "#!/bin/bash\n")
    run.record_event(1, "queued")
    return run


def test_the_jobs_output_then_the_attempts_is_printed_until_the_end(
    run: RunFolder, command, capfdbinary
) -> None:
    command("squeue", "echo '7|PENDING||||Resources'")
    output = run.path.parent / f"{run.name}-7.out"

    def live() -> None:
        time.sleep(0.1)
        output.write_text("the job begins\n")
        time.sleep(0.1)
        run.attempt(1).mkdir()
        run.note(1, slurm={"job": "7"})
        (run.attempt(1) / "output.log").write_text("step 1\n")
        run.record_event(1, "started")
        time.sleep(0.1)
        with (run.attempt(1) / "output.log").open("a") as file:
            file.write("step 2\n")
        run.record_event(1, "done")

    thread = threading.Thread(target=live)
    thread.start()
    end = follow(run, lines=20)
    thread.join()
    printed = capfdbinary.readouterr()
    assert printed.out == b"the job begins\nstep 1\nstep 2\n"
    assert b"job 7 waits: Resources\n" in printed.err
    assert end.name == "done"


def test_only_the_last_existing_lines_are_printed(run: RunFolder, capfdbinary) -> None:
    run.attempt(1).mkdir()
    (run.attempt(1) / "output.log").write_text("".join(f"line {i}\n" for i in range(100)))
    run.record_event(1, "failed", reason="nan")
    assert follow(run, lines=2).name == "failed"
    assert capfdbinary.readouterr().out == b"line 98\nline 99\n"


def test_a_run_that_failed_before_it_started_shows_why(run: RunFolder, launch) -> None:
    run.attempt(1).mkdir()
    (run.attempt(1) / "output.log").write_text("no module named torch\n")
    run.record_event(1, "failed", reason="crash")
    code, out, err = launch("tail", run.path)
    assert (code, out) == (1, "no module named torch\n")
    assert err.endswith(f"failed: {run.path}\n")


def test_a_job_that_died_silently_ends_the_tail(run: RunFolder, command) -> None:
    command("squeue", "echo '7|NODE_FAIL|n1|||None'")
    with pytest.raises(Refused, match="queued, but its job 7 is NODE_FAIL"):
        follow(run, lines=20)
