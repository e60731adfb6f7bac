"""A batch script runs without Slurm as under it, and its run records how it ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from configs.load import resolve, to_tree
from configs.yaml12 import dump_yaml
from runs.attempt.placement import ranks_of
from runs.attempt.script import FIRST, LATER, MARK
from runs.folder import ROOT, RunFolder
from tests.corpus.log_texts import CUDA_OOM, TRACEBACK

START = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from runs.attempt.script import main; "


def run_of(folder: Path, text: str, **keys: Any) -> RunFolder:
    """Make the folder of a run of a script with this text."""
    run = RunFolder(folder / "run")
    (run.path / "attempts").mkdir(parents=True)
    (run.path / "script").mkdir()
    (run.path / "script" / FIRST).write_text(text)
    (run.path / "script" / LATER).write_text(text.replace("train", f"train {MARK}"))
    tree = {"kind": "command", "script": "/lab/my.sbatch", "folder": str(folder)} | keys
    run.config_file.write_text(dump_yaml(to_tree(resolve(tree, source="test"))))
    return run


def started(run: RunFolder, *arguments: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-I", "-c", f"{START}main(*sys.argv[1:])", str(run.path), *arguments]
    outer = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    return subprocess.Popen(
        words, cwd=run.path.parent, env=outer | {"UMASK": "077"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(run: RunFolder, *arguments: str) -> tuple[int, bytes, dict[str, Any]]:
    """Return the exit status, the output, and the last event."""
    process = started(run, *arguments)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out, [*run.records()][-1]


@pytest.mark.parametrize(
    ("text", "status", "event", "reason"),
    [
        ("echo step 1 loss 2.0", 0, "done", None),
        ("exit 3", 3, "failed", "crash"),
        (f"cat <<'END'\n{TRACEBACK}{CUDA_OOM}\nEND\nexit 1", 1, "failed", "oom"),
        ("kill -9 $$", -9, "failed", "killed"),
        ("ulimit -c 0; kill -SEGV $$", -11, "failed", "killed"),
    ],
)
def test_a_script_ends_with_its_own_status_and_the_run_says_why(
    tmp_path: Path, text: str, status: int, event: str, reason: str | None
) -> None:
    found, _, last = ended(run_of(tmp_path, f"#!/bin/bash\n{text}\n"))
    assert (found, last["event"], last.get("reason")) == (status, event, reason)


def test_output_arguments_and_working_directory_are_those_of_the_script(tmp_path: Path) -> None:
    run = run_of(tmp_path, '#!/bin/bash\nprintf "%s|" "$@"; pwd; cat; umask; echo e >&2\n')
    _, out, _ = ended(run, "a b", "$(x)", "")
    mask = os.umask(0)
    os.umask(mask)
    assert out == f"a b|$(x)||{tmp_path}\n{mask:04o}\n".encode()
    assert (run.attempt(1) / "output.log").read_bytes() == out + b"e\n"


def test_a_script_that_cannot_start_is_said_to_be_faulty(tmp_path: Path) -> None:
    status, _, last = ended(run_of(tmp_path, "#!/no/such/shell\n"))
    assert (status, last["reason"]) == (127, "config")


def test_what_a_script_leaves_behind_may_not_hold_its_job(tmp_path: Path) -> None:
    run = run_of(tmp_path, "#!/bin/bash\n(while echo x; do sleep 0.1; done) &\nexit 0\n")
    status, _, last = ended(run)
    assert (status, last["event"]) == (0, "done")


@pytest.mark.parametrize(("status", "end"), [(0, ("done", None)), (3, ("failed", "disk"))])
def test_a_full_disk_changes_no_end_of_a_script(
    full_disk: Path, status: int, end: tuple[str, str | None]
) -> None:
    run = run_of(full_disk, f"#!/bin/bash\nhead -c 2000000 /dev/zero\nexit {status}\n")
    found, out, last = ended(run)
    assert (found, len(out)) == (status, 2_000_000)
    assert (last["event"], last.get("reason")) == end


def test_a_later_attempt_resumes_from_the_newest_file_and_a_first_one_from_none(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, "#!/bin/bash\necho train\n", resume="--ckpt '{newest:out/c-*.pt}'")
    assert ended(run)[1] == b"train\n"
    assert ended(run)[1] == b"train\n"
    (tmp_path / "out").mkdir()
    for age, name in ((50, "c-9.pt"), (10, "c 'x'-10.pt"), (5, "c-$(touch x).pt")):
        (tmp_path / "out" / name).touch()
        os.utime(tmp_path / "out" / name, (time.time() - age,) * 2)
    _, out, _ = ended(run)
    assert out == b"train --ckpt out/c-$(touch x).pt\n"
    assert not (tmp_path / "x").exists()
    # A file that its program was writing when it was killed may be cut short.
    (tmp_path / "out" / "c-11.pt").touch()
    run.record_event(3, "paused", killed=True)
    assert ended(run)[1] == out


def test_a_file_stop_ends_a_script_in_the_end_by_force(tmp_path: Path) -> None:
    run = run_of(
        tmp_path, "#!/bin/bash\ntrap 'echo saved; exit 0' TERM\necho begun\nsleep 60 & wait\n"
    )
    process = started(run)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    (run.attempt(1) / "STOP").touch()
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"saved\n", 0)
    assert [*run.records()][-1]["event"] == "stopped"


def test_a_signal_reaches_the_script_once(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        "#!/bin/bash\ntrap 'echo usr1; n=1' USR1\necho begun\n"
        "while [[ -z $n ]]; do sleep 0.1; done\n",
    )
    process = started(run)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=30)
    assert out == b"usr1\n"


WRITES = """#!/bin/bash
mkdir -p out/$1
for n in 1 2 3; do echo "{\\"step\\": $n, \\"loss\\": $n}" >>out/$1/metrics.jsonl; done
echo 1,2 >>all.csv
"""


def kept(run: RunFolder, attempt: int = 1) -> dict[str, str]:
    folder = run.attempt(attempt) / "logs"
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_text() for file in files}


def test_a_log_that_the_script_wrote_is_kept_without_what_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("step,loss\n0,9\n")
    (tmp_path / "old.jsonl").write_text("{}\n")
    (tmp_path / "a.csv").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "a.jsonl")
    run = run_of(tmp_path, WRITES)
    ended(run, "a")
    assert kept(run).keys() == {"all.csv", "out/a/metrics.jsonl"}
    assert kept(run)["all.csv"] == "step,loss\n1,2\n"
    ended(run, "a")
    assert kept(run, 2)["out/a/metrics.jsonl"].count("\n") == 3


def test_of_runs_in_one_folder_only_logs_with_the_name_of_a_run_are_kept(tmp_path: Path) -> None:
    run = run_of(tmp_path, WRITES)
    other = RunFolder(tmp_path / "other")
    other.attempt(1).mkdir(parents=True)
    other.config_file.write_text(run.config_file.read_text())
    other.note(1, time=time.time(), folder=str(tmp_path))
    ended(run, "run")
    assert kept(run).keys() == {"out/run/metrics.jsonl"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, 4),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}, 8),
    ],
)
def test_gpus_count_on_all_nodes_of_a_job_and_outside_slurm_only_if_they_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: int | None
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ranks_of([{"rank": rank, "gpu": "NVIDIA A40"} for rank in range(4)]) == expected
