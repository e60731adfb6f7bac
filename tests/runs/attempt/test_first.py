"""Of several jobs that are queued for a run, one trains it: the first, also after a requeue."""

import errno
import json
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from configs.errors import ConfigError
from configs.load import load, to_tree
from runs.attempt import first
from runs.attempt.close import close_attempt
from runs.attempt.first import claim_run
from runs.attempt.open import open_attempt
from runs.folder import RunFolder, make_run
from runs.jobs import awaited_jobs, claim_file, save_script, scripts_folder
from runs.records import RecordWriter

pytestmark = pytest.mark.usefixtures("logs")
TRIES = 200


@pytest.fixture
def run(config: Path) -> RunFolder:
    """A run for which the jobs 7 and 8 are queued."""
    one = make_run("run", to_tree(load(config)))
    scripts_folder(one).mkdir()
    for job in ("7", "8"):
        save_script(one, job, "#!/bin/bash\nexport DITBENCH_FIRST=1122-1\n")
    one.record_event(1, "queued")
    return one


def be_job(monkeypatch: pytest.MonkeyPatch, job: str, *, restarts: int = 0) -> None:
    monkeypatch.setenv("DITBENCH_FIRST", "1122-1")
    monkeypatch.setenv("DITBENCH_ALTERNATIVE", f"a{job}0:1x1")
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("ENVIRONMENT", "BATCH")
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))


def claim_all(job: str, folders: list[Path], answers: Connection, barrier) -> None:
    os.environ |= {"DITBENCH_FIRST": "1", "DITBENCH_ALTERNATIVE": "a", "SLURM_JOB_ID": job}
    wins = []
    for folder in folders:
        barrier.wait()
        wins.append(claim_run(RunFolder(folder)))
    answers.send(wins)


def test_a_race_of_two_jobs_has_one_winner_in_200_tries(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(TRIES)]
    for folder in folders:
        (folder / "jobs").mkdir(parents=True)
    context = multiprocessing.get_context("fork")
    barrier, found = context.Barrier(2), []
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    racers = [
        context.Process(target=claim_all, args=(job, folders, pipe[1], barrier))
        for job, pipe in zip(("7", "8"), pipes, strict=True)
    ]
    for racer in racers:
        racer.start()
    for racer, (answers, _) in zip(racers, pipes, strict=True):
        found.append(answers.recv())
        racer.join()
    assert [sum(pair) for pair in zip(*found, strict=True)] == [1] * TRIES
    for folder, is_first in zip(folders, found[0], strict=True):
        assert (folder / "jobs" / "1.claim").read_text() == ("7\n" if is_first else "8\n")
        assert [file.name for file in (folder / "jobs").iterdir()] == ["1.claim"]


def test_the_first_job_has_the_run_and_the_second_leaves_it_as_it_is(
    run: RunFolder, monkeypatch, capsys
) -> None:
    assert awaited_jobs(run) == ["7", "8"]
    be_job(monkeypatch, "8")
    attempt = open_attempt(run.path, ["resources.gpu=a100", "train.micro_batch=4"])
    assert attempt == run.attempt(1)
    (entry,) = run.entries()
    assert (entry["alternative"], entry["slurm"]["job"]) == ("a80:1x1", "8")
    config = run.config()
    assert (config.resources.gpu, config.train.micro_batch) == ("a100", 4)
    assert awaited_jobs(run) == ["8"]
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    be_job(monkeypatch, "7")
    # Not even a config that cannot work is recorded.
    assert open_attempt(run.path, ["train.micro_batch=3"], nodes=1, gpus=5) is None
    assert "another job started first and has it" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_requeued_winner_wins_again_and_a_requeued_loser_loses(
    run: RunFolder, monkeypatch
) -> None:
    be_job(monkeypatch, "7")
    assert open_attempt(run.path, ["resources.gpu=a40"])
    be_job(monkeypatch, "8", restarts=1)
    assert open_attempt(run.path, ["resources.gpu=a100"]) is None
    be_job(monkeypatch, "7", restarts=1)
    assert open_attempt(run.path, ["resources.gpu=a40"]) == run.attempt(2)
    assert [entry["alternative"] for entry in run.entries()] == ["a70:1x1"] * 2


def test_a_job_that_cannot_train_leaves_the_run_to_the_others(run: RunFolder, monkeypatch) -> None:
    be_job(monkeypatch, "7")
    with pytest.raises(ConfigError, match=r"train\.micro_batch 3 does not divide"):
        open_attempt(run.path, ["train.micro_batch=3"], gpus=1)
    assert [record["event"] for record in run.records()] == ["queued"]
    be_job(monkeypatch, "8")
    assert open_attempt(run.path, [], gpus=1)


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_with_a_full_disk_nobody_trains_until_a_job_can_claim(
    run: RunFolder, monkeypatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    be_job(monkeypatch, "7")
    with monkeypatch.context() as patch:
        patch.setattr(first.os, step, fail)
        with pytest.raises(ConfigError, match=r"cannot be claimed: No space left on device; make"):
            open_attempt(run.path, [])
    assert run.attempts() == []
    assert sorted(file.name for file in scripts_folder(run).iterdir()) == ["7.sbatch", "8.sbatch"]
    be_job(monkeypatch, "8")
    assert open_attempt(run.path, []) == run.attempt(1)


def test_a_claim_whose_answer_was_lost_on_the_network_is_a_claim(
    run: RunFolder, monkeypatch
) -> None:
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    be_job(monkeypatch, "7")
    monkeypatch.setattr(first.os, "link", link_twice)
    assert claim_run(run)


def test_a_claim_of_another_job_that_is_not_visible_yet_is_respected(
    run: RunFolder, monkeypatch
) -> None:
    claim_file(run, "1122-1").write_text("8\n")
    monkeypatch.setattr(first, "claimant", lambda *_: None)
    be_job(monkeypatch, "7")
    assert open_attempt(run.path, []) is None
    assert run.attempts() == []


def test_a_damaged_claim_is_an_error_and_no_job_trains(run: RunFolder, monkeypatch) -> None:
    claim_file(run, "1122-1").write_text("")
    be_job(monkeypatch, "7")
    with pytest.raises(ConfigError, match=r"1122-1\.claim: not the id of a job"):
        open_attempt(run.path, [])


def test_a_failed_winner_says_how_to_go_on(run: RunFolder, monkeypatch, capsys) -> None:
    be_job(monkeypatch, "7")
    attempt = open_attempt(run.path, [])
    assert attempt is not None
    (attempt / "error.json").write_text(json.dumps({"reason": "oom", "message": "full"}))
    RecordWriter(run.path, attempt=1).event("started", step=0)
    capsys.readouterr()
    assert close_attempt(attempt, status=1).exit_code == 1
    assert f"to go on as a70:1x1: ditbench rerun {run.path}; as others" in capsys.readouterr().err
