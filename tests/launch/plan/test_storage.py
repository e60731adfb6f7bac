"""The checkpoints that a run keeps must fit on its disk and within its quotas."""

from collections.abc import Callable
from pathlib import Path

import pytest

from launch.plan import storage
from tests.launch.conftest import DIGITS
from tests.launch.plan.conftest import SMALL, only, subject

Launch = Callable[..., tuple[int, str, str]]
Command = Callable[[str, str], Path]


@pytest.mark.parametrize(("free", "level"), [(64_000_000, "pass"), (63_999_999, "fail")])
def test_one_more_checkpoint_than_are_kept_must_fit(
    monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    monkeypatch.setattr(storage, "free_bytes", lambda folder: iter([("a quota", free)]))
    line = only([*storage.room(subject("checkpoint.keep=3"), SMALL)])
    assert line.level == level
    if level == "fail":
        assert "a quota leaves" in line.message


def test_quotas_are_read(command: Command, tmp_path: Path) -> None:
    command("lfs", 'echo "$5 [1000]* 900 2000 - 50 0 60 -"')
    command("quota", "printf 'Disk quotas for user a:\\n/dev/x 500 0 700 0 10 0 0 0\\n'")
    disk, *quotas = storage.free_bytes(tmp_path)
    assert disk[1] > 0
    assert quotas == [("the quota of lfs", 1000 * 1024), ("your quota", 200 * 1024)]


def test_a_study_counts_what_all_its_runs_keep_and_names_the_key(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "free_bytes", lambda folder: iter([("x", 1)]))
    grid = ("seed=1,2", "repeats=3", "throttle=2", "train.steps=900", "resources.gpu=a40")
    for command in ("plan", "submit"):
        code, out, err = launch(command, DIGITS, *grid)
        # Each of six runs keeps two, of steps 500 and 900; two run at once.
        assert (code, "14 checkpoints of " in out + err) == (1, True)
        assert "fix: lower checkpoint.keep, " in out + err
