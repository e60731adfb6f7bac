"""Queueing a run: its checks, its files, and a refusal. Slurm is replaced by shell scripts."""

from pathlib import Path

import pytest

from runs.folder import RunFolder, find_runs
from tests.launch.conftest import DIGITS

pytestmark = pytest.mark.usefixtures("slurm")


def test_a_queued_run_has_its_config_event_and_script(launch, site: Path, tmp_path: Path) -> None:
    code, out, err = launch("submit", DIGITS, "train.steps=7")
    (run,) = find_runs(site)
    assert (code, out) == (0, f"run: {run.path}\njob: 101\n")
    assert "ditbench tail" in err
    assert run.config().train.steps == 7
    assert [(one["event"], one["attempt"]) for one in run.records()] == [("queued", 1)]
    text = (run.path / "jobs" / "101.sbatch").read_text()
    assert text == (tmp_path / "101.sbatch").read_text()
    assert f"exec bash {site}/.code/" in text
    assert text.endswith(f"/jobs/pretrain.sbatch {run.path}\n")
    assert run.path.stat().st_mode & 0o077 == 0


def test_sbatch_gets_none_of_its_variables(
    launch, command, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(
        "sbatch",
        f"[[ $1 == --test-only ]] || {{ env >{tmp_path}/env; echo Submitted batch job 7; }}",
    )
    for name in ("SBATCH_PARTITION", "SBATCH_EXPORT", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.setenv(name, "9")
    monkeypatch.setenv("ENVIRONMENT", "BATCH")
    monkeypatch.setenv("SLURM_CONF", "/x")
    _, _, err = launch("submit", DIGITS)
    (run,) = find_runs(site)
    env = (tmp_path / "env").read_text()
    assert "SBATCH_" not in env
    assert "SLURM_CONF=/x\n" in env
    assert "SLURM_JOB_ID" not in env
    assert "ENVIRONMENT=BATCH" not in env
    assert "SBATCH_EXPORT, SBATCH_PARTITION: ignored" in err
    assert not run.name.endswith("-9")


def test_a_refusal_by_sbatch_leaves_nothing(launch, command, site: Path) -> None:
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo QOSMaxSubmitJob >&2; exit 1")
    code, out, err = launch("submit", DIGITS)
    assert (code, out) == (1, "")
    assert "sbatch refuses the job: QOSMaxSubmitJob" in err
    assert find_runs(site) == []


def test_a_job_that_only_waits_for_lost_nodes_is_queued(launch, command) -> None:
    command("sinfo", r"[[ $* == *%D* ]] && echo 2 || printf 'gpu*|infinite\n'")
    command(
        "sbatch",
        """[[ $1 == --test-only ]] || { echo Submitted batch job 7; exit; }
        echo 'allocation failure: Requested node configuration is not available' >&2; exit 1""",
    )
    code, out, err = launch("submit", DIGITS)
    assert (code, "job: 7" in out) == (0, True)
    assert "some nodes are down or drained, so sbatch decides" in err


def started_run(site: Path, launch, *events: str) -> RunFolder:
    launch("submit", DIGITS, "train.steps=10")
    (run,) = find_runs(site)
    run.attempt(1).mkdir()
    for event in events:
        run.record_event(1, event, step=10)
    return run


def test_a_run_is_resumed_with_free_keys_in_its_own_folder(launch, site: Path) -> None:
    run = started_run(site, launch, "started", "stopped")
    code, out, _ = launch("submit", run.path, "train.steps=20")
    assert (code, out) == (0, f"run: {run.path}\njob: 102\n")
    text = (run.path / "jobs" / "102.sbatch").read_text()
    assert text.endswith(f"/jobs/pretrain.sbatch {run.path} train.steps=20\n")
    last = list(run.records())[-1]
    assert (last["event"], last["attempt"]) == ("queued", 2)
    code, _, err = launch("submit", run.path, "optimizer.lr=1.0")
    assert (code, "optimizer.lr: cannot change" in err) == (2, True)


def test_a_done_run_is_not_queued_again(launch, site: Path) -> None:
    run = started_run(site, launch, "started", "done")
    code, out, err = launch("submit", run.path)
    assert (code, out) == (0, "")
    assert "already done; raise train.steps to continue" in err
    assert launch("submit", run.path, "train.steps=11")[0] == 0


def test_a_refused_resume_is_recorded_in_the_run(launch, command, site: Path) -> None:
    run = started_run(site, launch, "started", "stopped")
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo no >&2; exit 1")
    assert launch("submit", run.path)[0] == 1
    last = list(run.records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "config")
