"""The loop: an interrupted run records what an uninterrupted one does."""

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from analysis.__main__ import main as analyse
from runs.attempt.close import close_attempt
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from tests.real_runs import DIGITS, TINY, events, in_this_process, losses
from train.engine import stop
from train.engine.attempt import run_attempt
from train.engine.watchdog import HangWatchdog
from train.parts import samples
from train.pretrain.run import carry_out

KEYS = (*TINY, "train.steps=12", "log.every=5", "checkpoint.every=12", "train.ema_decay=0.9")


def train(source: Path, *overrides: str) -> RunFolder:
    """Carry out one attempt in this process."""
    folder = open_attempt(source, list(overrides))
    run = RunFolder(folder.parent.parent)
    with in_this_process():
        close_attempt(folder, status=run_attempt(run, carry_out, number=int(folder.name)))
    return run


def stop_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stop request come after `calls` polls, the first of which precedes the first step."""
    polls = iter(range(1_000_000))
    monkeypatch.setattr(
        stop.StopSignals,
        "request",
        lambda _: stop.StopRequest.PAUSE if next(polls) == calls else stop.StopRequest.GO_ON,
    )


def test_a_run_stopped_within_an_interval_records_the_losses_of_an_uninterrupted_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(DIGITS, *KEYS)
    stop_after(2, monkeypatch)
    broken = train(DIGITS, *KEYS)
    first = max(losses(broken))
    stop_after(5, monkeypatch)
    train(broken.path)
    second = max(losses(broken))
    assert 0 < first < 5 < second < 10
    stop_after(1000, monkeypatch)
    train(broken.path)
    assert {step: losses(broken)[step] for step in losses(whole)} == losses(whole)
    assert set(losses(broken)) == {first, 5, second, 10, 12}
    assert [entry["compile"] for entry in broken.entries()] == [False] * 3  # train.compile: auto
    assert analyse(["loss", "--exact", str(whole.path), str(broken.path)]) == 0
    assert "identical" in capsys.readouterr().out


def test_turns_of_an_interleaved_study_have_the_losses_of_an_uninterrupted_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = (*KEYS, "train.steps=15")
    whole = train(DIGITS, *keys)
    monkeypatch.setenv("DITBENCH_TURN", "1120-093000-1a2b:5")
    run = train(DIGITS, *keys)
    monkeypatch.setenv("DITBENCH_TURN", "1120-093000-1a2b:10")
    with monkeypatch.context() as interrupted:
        stop_after(3, interrupted)
        train(run.path)
    assert 5 < max(losses(run)) < 10
    for end in (10, 15):
        monkeypatch.setenv("DITBENCH_TURN", f"1120-093000-3c4d:{end}")
        train(run.path)
    turn = ["started", "saved", "paused"]
    assert events(run) == [*turn, *turn, *turn, "started", "saved", "saved", "done"]
    assert [entry["turn"].rpartition(":")[2] for entry in run.entries()] == ["5", "10", "10", "15"]
    assert {step: losses(run)[step] for step in losses(whole)} == losses(whole)


def test_a_resume_with_fewer_steps_than_are_saved_is_done_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DITBENCH_TURN", "1120-093000-1a2b:5")
    run = train(DIGITS, *KEYS)
    monkeypatch.delenv("DITBENCH_TURN")
    train(run.path, "train.steps=3")
    assert (events(run)[-1], list(run.records())[-1]["step"]) == ("done", 5)


def test_no_rank_is_watched_while_rank_0_writes_files_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def noted(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def call(*words: Any, **named: Any) -> Any:
            order.append(name)
            return original(*words, **named)

        monkeypatch.setattr(owner, name, call)

    noted(HangWatchdog, "begin_step")
    noted(dist, "barrier")
    noted(samples, "save_grid")
    train(DIGITS, *TINY, "train.steps=2", "sample.every=1", "checkpoint.every=2", "sample.steps=1")
    written = [place for place, name in enumerate(order) if name == "save_grid"]
    assert [order[place + 1] for place in written] == ["barrier", "barrier"]
    assert order[0] == "begin_step"
