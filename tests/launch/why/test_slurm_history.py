"""`launch why` on jobs without a run: of other programs, and of ours."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runs.folder import ROOT
from tests.corpus.log_texts import CUDA_OOM
from tests.launch.conftest import DIGITS
from tests.launch.why.conftest import Launch


def foreign(command: Callable[[str, str], Path], folder: Path, state: str, code: str) -> None:
    """Let Slurm know a job of a script of somebody's own in `folder`."""
    fields = f"{state}|{code}|2026-03-01T10:00:00|2026-03-01T11:00:00|01:00:00|None|gpu|n1"
    command("sacct", f"[[ $* == *WorkDir* ]] && echo '{folder}|train' || echo '{fields}'")


OWN_TRACEBACK = 'Traceback\n  File "my.py", line 3, in <module>\n    import x\nImportError: no x'


@pytest.mark.parametrize(
    ("state", "code", "log", "cause", "evidence", "advice"),
    [
        ("COMPLETED", "0:0", "step 9\nall done", "completed", "slurm-90.out:2: all done", "noth"),
        ("COMPLETED", "0:0", f"{OWN_TRACEBACK}\nbye", "exception, but exit code 0",
         "my.py:3: ImportError: no x", "set -e"),
        ("FAILED", "1:0", OWN_TRACEBACK, "crash", "my.py:3: ImportError: no x", "slurm-90.out"),
        ("FAILED", "0:9", "step 10 loss nan", "killed", "exit code 0:9", "dmesg"),
        ("FAILED", "137:0", "Killed", "killed", "exit code 137:0", "dmesg"),
        ("FAILED", "1:0", CUDA_OOM, "cuda oom", "CUDA out of memory", "smaller batch"),
        ("TIMEOUT", "0:0", "step 9", "time limit", "TIMEOUT", "sbatch --time"),
        ("CANCELLED by 0", "0:0", "step 9", "scancel", "CANCELLED", "submit it again"),
        ("FAILED", "2:0", "usage: my.py", "crash", "usage: my.py", "slurm-90.out"),
        ("RUNNING", "0:0", "Connection refused", "has not ended", "RUNNING", "slurm-90.out"),
    ],
)  # fmt: skip
def test_a_job_of_another_program_gets_no_advice_of_ours(
    site: Path, launch: Launch, command: Callable[[str, str], Path], tmp_path: Path,
    state: str, code: str, log: str, cause: str, evidence: str, advice: str,
) -> None:  # fmt: skip
    (tmp_path / "slurm-90.out").write_text(log + "\n")
    foreign(command, tmp_path, state, code)
    out = launch("why", "90")[1]
    assert out.startswith(f"job 90: {cause}\n")
    assert evidence in out
    assert advice in out.splitlines()[-1]
    for word in ("RUN ", "ditbench submit", "error.json", "train.", "JOB", "NNN"):
        assert word not in out


def test_a_job_whose_run_was_removed(
    site: Path, launch: Launch, command: Callable[[str, str], Path]
) -> None:
    site.mkdir()
    (site / "pretrain-91.out").write_text(f"run {site}/digits-91, attempt 1\nTraceback\n")
    foreign(command, site, "FAILED", "2:0")
    out = launch("why", "91")[1]
    assert "the folder of the run is gone" in out
    assert "submit its config again" in out


def test_a_job_of_ours_without_a_run_names_its_config(
    site: Path, launch: Launch, command: Callable[[str, str], Path]
) -> None:
    command("sacct", f"[[ $* == *WorkDir* ]] && echo '{ROOT}|pretrain'")
    shown = f"JobId=92 JobState=FAILED ExitCode=2:0 Command=/x/jobs/pretrain.sbatch {DIGITS} a.b=1"
    command("scontrol", f"echo '{shown} WorkDir={ROOT}'")
    out = launch("why", "92")[1]
    assert out.startswith("job 92: config\n")
    assert f"ditbench check {DIGITS.relative_to(ROOT)}" in out
