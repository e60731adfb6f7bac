"""The state of runs: from the record, and from Slurm if it has no end. Slurm is a shell script."""

import json
from pathlib import Path

import pytest

from configs.load import load, to_tree
from runs.folder import RunFolder, make_run
from runs.jobs import save_script, scripts_folder
from tests.launch.conftest import DIGITS


def sample_run(
    *events: str, job: str | None = "7", has_attempt: bool = True, **fields: object
) -> RunFolder:
    """Make a run, submitted as `job`, whose first attempt recorded these events."""
    run = make_run("digits", to_tree(load(DIGITS, ["train.steps=600"])))
    if job:
        scripts_folder(run).mkdir(exist_ok=True)
        save_script(run, job, "#!/bin/bash\n")
    if has_attempt:
        run.attempt(1).mkdir()
        run.note(1, slurm={"job": job, "nodelist": "n[1-2]"} if job else None)
    for event in events:
        run.record_event(1, event, **(fields if event == events[-1] else {}))
    return run


def row(launch, run: RunFolder) -> dict[str, object]:
    code, out, _ = launch("status", run.path, "--json")
    assert code == 0
    (one,) = json.loads(out)
    return one


def test_slurm_is_asked_once_for_all_runs(launch, command, tmp_path: Path, site: Path) -> None:
    command("squeue", f'echo "$@" >>{tmp_path}/asked; cat {tmp_path}/queue')
    (tmp_path / "queue").write_text("7|PENDING||||None\n8|RUNNING||||\n")
    command("sacct", "exit 1")
    sample_run("queued", has_attempt=False)
    sample_run("started", job="8")
    code, out, _ = launch("status")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[-2:]] == ["running", "queued"]
    (query,) = (tmp_path / "asked").read_text().splitlines()
    assert "--jobs=7,8,1 " in query


@pytest.mark.parametrize("squeue", ["echo down >&2; exit 1", "exec /nowhere/squeue"])
def test_without_an_answer_from_slurm_the_record_is_shown(squeue: str, launch, command) -> None:
    command("squeue", squeue)
    run = sample_run("queued", has_attempt=False)
    code, out, err = launch("status", run.path, "--json")
    assert (code, json.loads(out)[0]["state"]) == (0, "queued")
    assert "without Slurm" in err


def test_a_folder_without_runs_gives_no_rows_and_a_missing_one_is_misuse(
    launch, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert launch("status", tmp_path / "empty") == (0, "", f"no run in {tmp_path}/empty\n")
    assert launch("status") == (0, "", f"no run in {tmp_path}/logs\n")
    code, _, err = launch("status", tmp_path / "nope")
    assert (code, "no such folder" in err) == (2, True)


def test_a_pending_job_is_cancelled_and_its_run_stopped(launch, command, tmp_path: Path) -> None:
    command("squeue", "echo '7|PENDING||||Priority'")
    command("scancel", f'echo "$@" >>{tmp_path}/cancelled')
    run = sample_run("queued", has_attempt=False)
    code, out, _ = launch("cancel", run.path)
    assert (code, out) == (
        0, f"{run.path}: 0 running, which save and stop; 1 waiting or starting, now stopped\n",
    )  # fmt: skip
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert [record["event"] for record in run.records()] == ["queued", "stopped"]


def test_a_running_job_is_cancelled_and_writes_its_own_end(launch, command) -> None:
    command("squeue", "echo '7|RUNNING|n1|||None'")
    command("scancel", "exit 0")
    run = sample_run("queued", "started")
    assert launch("cancel", run.path)[0] == 0
    assert [record["event"] for record in run.records()] == ["queued", "started"]


def test_a_run_in_a_session_is_stopped_but_the_session_is_not(launch, command) -> None:
    command("scancel", "exit 99")
    run = sample_run("started", job=None)
    run.note(1, slurm={"job": "9"})
    assert launch("cancel", run.path)[0] == 0
    assert run.stop_file.exists()


def test_an_ended_run_is_not_cancelled(launch, command) -> None:
    command("scancel", "exit 99")
    run = sample_run("started", "done")
    code, out, err = launch("cancel", run.path)
    assert (code, out, err) == (0, "", f"{run.path}: already ended\n")


def test_a_refusal_by_scancel_is_reported(launch, command) -> None:
    command("squeue", "echo '7|RUNNING|n1|||None'")
    command("scancel", "echo 'Access/permission denied' >&2; exit 1")
    code, _, err = launch("cancel", sample_run("started").path)
    assert (code, err) == (1, "scancel 7: Access/permission denied\n")


def test_a_damaged_run_is_a_row_and_hides_no_other(launch, command) -> None:
    command("squeue", "true")
    good, bad = sample_run("started", "done"), sample_run("started", "done")
    bad.manifest_file.write_text("[]")
    code, out, _ = launch("status", good.path.parent, "--json")
    assert code == 0
    rows = {one["run"]: one for one in json.loads(out)}
    assert rows[str(good.path)]["state"] == "done"
    assert rows[str(bad.path)]["state"] == "unreadable"
    assert "manifest.json" in rows[str(bad.path)]["why"]
    code, out, _ = launch("status", good.path.parent, "--once")
    assert "unreadable" in out
