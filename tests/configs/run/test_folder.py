"""Run folders are found, created, resumed and claimed."""

import os
import stat
from pathlib import Path

import pytest

from configs.attempt.open import open_attempt
from configs.errors import ConfigError
from configs.load import read_tree
from configs.run.folder import find_runs
from configs.run.records import RecordWriter
from tests.configs.conftest import begin

pytestmark = pytest.mark.usefixtures("logs")


def test_a_config_becomes_a_run_with_every_key_resolved(config: Path, tmp_path: Path) -> None:
    run = begin(config, "train.steps=20")
    assert run.path.parent == tmp_path / "logs"
    assert run.name.startswith("my 'odd\" name-")
    assert run.config().train.steps == 20
    assert set(read_tree(run.config_file)) >= {"model", "data", "optimizer", "resources"}
    assert run.attempts() == [1]
    assert run.manifest()["attempts"][0]["attempt"] == 1


def test_a_relative_data_path_is_kept_as_an_absolute_one(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "c.yaml").write_text("data: {source: folder, path: images, channels: 3}\n")
    monkeypatch.chdir(tmp_path)
    assert begin(Path("c.yaml")).config().data.path == str(tmp_path / "images")


def test_the_same_config_again_is_another_run(config: Path) -> None:
    assert begin(config).path != begin(config).path


def test_a_run_folder_is_resumed_and_changes_stay_with_the_attempts(config: Path) -> None:
    run = begin(config)
    begin(run.path, "train.steps=30")
    begin(run.path)
    assert run.attempts() == [1, 2, 3]
    assert [run.config(attempt).train.steps for attempt in (1, 2, 3)] == [10, 30, 30]
    assert read_tree(run.config_file)["train"]["steps"] == 10
    assert read_tree(run.attempt(2) / "overrides.yaml") == {"train": {"steps": 30}}
    begin(run.path, "train.steps=10")
    assert [run.config(attempt).train.steps for attempt in (3, 4, None)] == [30, 10, 10]


def test_a_requeued_job_does_not_repeat_its_command_line(config: Path, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    run = begin(config, "train.steps=30")
    (run.attempt(1) / "overrides.yaml").write_text("train: {steps: 40}\n")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    begin(run.path, "train.steps=30")
    assert run.config(2).train.steps == 40
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    begin(run.path, "train.steps=30")
    assert run.config(3).train.steps == 30


def test_a_resume_may_not_change_keys_that_affect_the_loss(config: Path) -> None:
    run = begin(config)
    with pytest.raises(ConfigError, match=r"optimizer\.lr: cannot change when"):
        begin(run.path, "optimizer.lr=0.5")
    assert run.attempts() == [1]


@pytest.mark.parametrize(
    ("overrides", "gpus", "message"),
    [
        (["train.global_batch=7"], 2, "does not divide over 2 data ranks"),
        (["layout.shard=3"], 4, "does not make 4 ranks"),
        (["data.source=folder", "data.path=/nowhere"], 0, "data.path /nowhere: no such folder"),
        (["train.stepz=1"], 0, "did you mean train.steps"),
    ],
)
def test_a_config_that_cannot_run_is_refused_before_a_folder_is_made(
    config: Path, tmp_path: Path, overrides: list[str], gpus: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        begin(config, *overrides, gpus=gpus)
    assert not (tmp_path / "logs").exists()


def test_logs_that_cannot_be_written_are_named(config: Path, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOGS", str(tmp_path / "file" / "logs"))
    with pytest.raises(ConfigError, match="cannot create a run there"):
        begin(config)


def test_a_batch_job_names_its_run_and_finds_it_again_after_a_restart(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVIRONMENT", "BATCH")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    run = begin(config)
    assert run.name == "my 'odd\" name-4711"
    other = begin(config)
    assert other.path != run.path
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert begin(config).path == run.path
    assert run.attempts() == [1, 2]


def test_the_job_of_an_salloc_does_not_name_its_runs(config: Path, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert "4711" not in begin(config).name


def test_a_done_run_is_unchanged_until_it_gets_more_steps(config: Path) -> None:
    run = begin(config)
    RecordWriter(run.path, attempt=1).event("done", step=10)
    assert open_attempt(run.path, []) is None
    assert open_attempt(run.path, ["train.steps=11"]) is not None
    assert run.attempts() == [1, 2]


def test_a_queued_run_that_its_job_cannot_start_has_failed(config: Path, monkeypatch) -> None:
    run = begin(config)
    RecordWriter(run.path, attempt=1).event("queued")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    with pytest.raises(ConfigError, match="does not divide over 3 data ranks"):
        begin(run.path, gpus=3)
    last = list(run.records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "config")
    assert "does not divide" in last["message"]


def test_starting_a_stopped_run_removes_its_stop_file(config: Path) -> None:
    run = begin(config)
    run.stop_file.touch()
    begin(run.path)
    assert not run.stop_file.exists()


def test_the_restart_of_a_job_keeps_a_stop_request(config: Path, monkeypatch) -> None:
    run = begin(config)
    run.stop_file.touch()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    begin(run.path)
    assert run.stop_file.exists()


def test_runs_are_found_below_a_folder_but_not_in_snapshots_or_runs(
    config: Path, tmp_path: Path
) -> None:
    run = begin(config)
    for hidden in (tmp_path / "logs" / ".code" / "abc", run.attempt(1) / "aitoolkit" / "lora"):
        hidden.mkdir(parents=True)
        (hidden / "config.yaml").write_text("")
    assert [found.path for found in find_runs(tmp_path / "logs")] == [run.path]


def test_only_the_owner_can_read_a_run(config: Path) -> None:
    from configs.__main__ import main

    before = os.umask(0o022)
    try:
        assert main(["open", str(config)]) == 0
    finally:
        os.umask(before)
    (run,) = find_runs(Path(os.environ["LOGS"]))
    for path in [run.path, *run.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
