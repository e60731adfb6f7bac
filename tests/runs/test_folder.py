"""Run folders are found, created, resumed and claimed."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import ConfigError
from configs.load import read_tree
from runs.__main__ import main
from runs.folder import RunFolder, find_runs
from runs.records import RecordWriter
from tests.runs.conftest import begin

pytestmark = pytest.mark.usefixtures("logs")


def test_a_config_becomes_a_run_with_every_key_resolved(config: Path, tmp_path: Path) -> None:
    run = begin(config, "train.steps=20")
    assert run.path.parent == tmp_path / "logs"
    assert run.name.startswith("my 'odd\" name-")
    assert run.config().train.steps == 20
    assert set(read_tree(run.config_file)) >= {"model", "data", "optimizer", "resources"}
    assert run.attempts() == [1]
    assert run.manifest()["attempts"][0]["attempt"] == 1


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


def edit(run: RunFolder, old: str, new: str) -> None:
    text = run.config_file.read_text()
    assert old in text
    run.config_file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "  steps: 10\n",
            "  steps: 40\n",
            r"train\.steps: edited in .*back to 10.* train\.steps=40",
        ),
        ("lr: 0.0001", "lr: 0.001", r"optimizer\.lr: edited in .* back to 0\.0001"),
        ("  global_batch: 8\n", "", r"train\.global_batch: edited in .* back to 8"),
    ],
)
def test_an_edit_of_the_config_is_refused_with_the_old_value_and_the_command(
    config: Path, old: str, new: str, message: str
) -> None:
    run = begin(config)
    before = run.config_file.read_text()
    edit(run, old, new)
    with pytest.raises(ConfigError, match=message):
        begin(run.path)
    assert run.attempts() == [1]
    run.config_file.write_text(before)
    begin(run.path, "train.steps=50")
    begin(run.path)
    assert [run.config(attempt).train.steps for attempt in (1, 2, 3)] == [10, 50, 50]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "EOF"),
        (b"\x00\xff", "line 1 column 1"),
        (b"[" * 100_000, "recursion limit"),
        (b"null", "expected an object"),
        (b'{"attempts": {}}', "attempts: expected a valid array"),
        (b'{"attempts": [{"attempt": "1"}]}', r"attempts\.0\.attempt: expected a valid integer"),
        (b'{"attempts": [{"attempt": 1, "slurm": 7}]}', r"attempts\.0\.slurm: expected an object"),
        (b'{"schema_version": 2}', "of a newer ditbench, this one reads up to 1"),
    ],
)
def test_a_damaged_manifest_is_named_with_what_was_expected(
    config: Path, content: bytes, message: str
) -> None:
    run = begin(config)
    run.manifest_file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"manifest.json: .*{message}"):
        begin(run.path)
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


def test_runs_are_found_below_a_folder_but_not_in_snapshots_or_runs(
    config: Path, tmp_path: Path
) -> None:
    run = begin(config)
    for hidden in (tmp_path / "logs" / ".code" / "abc", run.attempt(1) / "aitoolkit" / "lora"):
        hidden.mkdir(parents=True)
        (hidden / "config.yaml").write_text("")
    assert [found.path for found in find_runs(tmp_path / "logs")] == [run.path]


def test_only_the_owner_can_read_a_run(config: Path) -> None:
    from runs.__main__ import main

    before = os.umask(0o022)
    try:
        assert main(["open", str(config)]) == 0
    finally:
        os.umask(before)
    (run,) = find_runs(Path(os.environ["LOGS"]))
    for path in [run.path, *run.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_RESTART_COUNT", "UMASK"])
@pytest.mark.parametrize("value", ["../../x", "abc", "-1", "9" * 5000, "\u0662"])
def test_a_variable_that_is_no_number_is_refused_before_a_folder_is_made(
    config: Path, tmp_path: Path, monkeypatch, capsys, name: str, value: str
) -> None:
    monkeypatch.setenv("ENVIRONMENT", "BATCH")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv(name, value)
    assert main(["open", str(config)]) == 2
    assert capsys.readouterr().err.startswith(f"{name}={value!r}: not a")
    assert not list(tmp_path.glob("logs/*"))


def test_a_restarted_job_takes_no_run_of_another_user(
    config: Path, shared: Path, intruder: Callable[[str], None], monkeypatch
) -> None:
    monkeypatch.setenv("LOGS", str(shared))
    for name, value in (("ENVIRONMENT", "BATCH"), ("SLURM_JOB_ID", "7")):
        monkeypatch.setenv(name, value)
    intruder("umask 0; mkdir -p evil-7/attempts; echo 'seed: 666' >evil-7/config.yaml")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    run = begin(config)
    assert run.path.stat().st_uid == os.geteuid()
    assert begin(config).path == run.path


def test_no_run_is_made_where_others_can_replace_it(
    config: Path, shared: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("LOGS", str(shared / "logs"))
    assert main(["open", str(config)]) == 2
    assert f"{shared}: others may write to it" in capsys.readouterr().err
    assert list(shared.rglob("config.yaml")) == []
    monkeypatch.setenv("LOGS", str(shared))
    begin(config)
    assert shared.stat().st_mode & 0o1000


def test_records_are_not_written_through_a_link(config: Path, tmp_path: Path) -> None:
    run = begin(config)
    (tmp_path / "mine").write_text("precious")
    run.metrics_file.unlink(missing_ok=True)
    run.metrics_file.symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="symbolic links"):
        RecordWriter(run.path, attempt=1)
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize("name", ["a/b", "-x", ".hidden", "a b", "'a\\nb'", "x" * 81])
def test_a_name_that_no_folder_should_have_is_refused(config: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="at most 80 letters"):
        begin(config, f"name={name}")
