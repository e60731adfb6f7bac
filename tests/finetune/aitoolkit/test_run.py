"""Driving ai-toolkit: the table, the log and the files as described, written by a stand-in."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from configs.attempt.open import open_attempt
from configs.errors import ConfigError
from configs.run.folder import RunFolder, claim_attempt, find_runs
from configs.run.records import valid
from finetune.aitoolkit.checkpoint import metadata_step
from tests.finetune.aitoolkit_runs import (
    carry_on,
    events,
    make_images,
    make_kit,
    new_run,
    signal_at,
    steps,
    wait_for,
)
from tests.finetune.conftest import TINY, paths


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with images, a stand-in for ai-toolkit, and runs."""
    make_images(tmp_path / "images")
    monkeypatch.setenv("AI_TOOLKIT", str(make_kit(tmp_path / "kit")))
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    return tmp_path


def error_of(run: RunFolder) -> dict[str, object]:
    return dict(json.loads((run.attempt(max(run.attempts())) / "error.json").read_text()))


def ai_toolkit_of(driver: int) -> int:
    """The process that a driver started."""
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    (found,) = (child for child, line in lines.items() if b"run.py" in line)
    return found


def asked(run: RunFolder, attempt: int = 1) -> dict[str, object]:
    """What its config said to ai-toolkit."""
    config = json.loads((run.attempt(attempt) / "aitoolkit" / "config.json").read_text())
    return dict(config["config"]["process"][0])


def test_its_steps_samples_and_checkpoints_become_those_of_a_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", "/somewhere/of/ours")
    monkeypatch.setenv("LOCAL_RANK", "0")
    run = new_run(here)
    assert carry_on(run) == 0
    assert [r["event"] for r in run.records() if "event" in r] == [
        "started", "saved", "saved", "saved", "done",
    ]  # fmt: skip
    assert [r["step"] for r in events(run, "saved")] == [5, 9, 12]
    assert [r["step"] for r in steps(run)] == list(range(1, 13))
    # Theirs count from 0, and the first is never logged.
    assert [r.get("loss") for r in steps(run)] == [None, *(1 / (1 + n) for n in range(1, 12))]
    clocks = [r["train_s"] for r in steps(run)]
    assert clocks == sorted(clocks)
    assert clocks[-1] >= 12 * 0.01
    last = events(run, "done")[0]
    assert all(last[f"{name}_s"] > 0 for name in ("setup", "load", "quantise", "cache", "sample"))
    drawn = [r for r in run.records() if "drawn_images" in r]
    assert [(r["step"], r["drawn_images"]) for r in drawn] == [(0, 2), (5, 2), (9, 2), (12, 2)]
    assert run.prompt_sample(0, 5).read_text() == "a thing at sea at 4"
    assert run.prompt_sample(1, 12).read_text() == "costs $5, not ${HOME} at 12"
    assert [metadata_step(file) for file in sorted(run.lora.iterdir())] == [4, 8, 12]
    said = json.loads((run.attempt(1) / "aitoolkit" / "output.log").read_text().splitlines()[0])
    assert not {"HF_HUB_OFFLINE", "PYTHONPATH", "LOCAL_RANK"} & set(said)
    assert run.manifest()["attempts"][0]["engine"] == "aitoolkit"


def test_captions_get_their_trigger_in_a_folder_of_the_run(here: Path) -> None:
    before = sorted(file.name for file in (here / "images").iterdir())
    run = new_run(here, train__steps=2)
    assert carry_on(run) == 0
    assert (run.path / "cache" / "aitoolkit" / "0.txt").read_text() == "a thing, the 0.\n"
    assert "trigger_word" not in asked(run)
    assert sorted(file.name for file in (here / "images").iterdir()) == before


def test_a_signal_lets_it_save_and_leave_and_a_resume_goes_on_from_that_very_step(
    here: Path,
) -> None:
    run = new_run(here, train__steps=100_000, checkpoint__every=70_000, sample__every=None)
    assert carry_on(run, meanwhile=lambda: signal_at(run, 6)) == 0
    saved = events(run, "saved")
    paused = events(run, "paused")
    assert len(saved) == len(paused) == 1
    assert saved[0]["step"] == paused[0]["step"] >= 6
    at = saved[0]["step"]
    assert carry_on(run, f"train.steps={at + 5}") == 0
    assert events(run, "started")[1]["step"] == at
    assert asked(run, 2)["train"]["start_step"] == at  # type: ignore[index]
    assert asked(run, 1)["training_seed"] == 0
    assert asked(run, 2)["training_seed"] != 0
    stands = [r for r in valid(run.records()) if "drawn_images" not in r]
    assert sorted(r["step"] for r in stands) == list(range(1, at + 6))
    # No step is trained twice, whatever was done between the save and the leave.
    assert len([r for r in stands if r["attempt"] == 2]) == 5
    assert events(run, "done")[0]["step"] == at + 5
    assert events(run, "done")[0]["load_s"] > paused[0]["load_s"]


def test_a_resume_takes_the_newest_whole_checkpoint_whatever_the_times_of_files(
    here: Path,
) -> None:
    run = new_run(here, train__steps=10)
    assert carry_on(run) == 0
    newest, older, oldest = sorted(run.checkpoints.glob("step-*"), reverse=True)
    os.truncate(newest / "lora.safetensors", 20)
    (oldest / "lora.safetensors").chmod(0o644)
    assert carry_on(run, "train.steps=12") == 0
    assert events(run, "started")[1]["step"] == 9 == int(older.name[5:])
    assert newest.with_suffix(".damaged").is_dir()
    assert events(run, "done")[1]["step"] == 12


def test_with_nothing_to_save_it_leaves_at_once(here: Path) -> None:
    run = new_run(here, train__steps=100_000)

    def stop() -> None:
        wait_for(lambda: run.attempts())
        run.stop_file.touch()

    assert carry_on(run, meanwhile=stop) == 0
    stopped = events(run, "stopped")[0]
    assert stopped["step"] in (0, *(r["step"] for r in events(run, "saved")))


def test_signals_to_all_processes_do_not_end_it_unsaved(here: Path) -> None:
    run = new_run(here, train__steps=60, checkpoint__every=1000, sample__every=None)

    def disturb() -> None:
        wait_for(lambda: any(r["step"] >= 3 for r in steps(run)))
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            os.kill(ai_toolkit_of(os.getpid()), number)

    assert carry_on(run, meanwhile=disturb) == 0
    assert events(run, "done")[0]["step"] == 60


def test_running_out_of_memory_is_the_reason_and_a_skipped_step_is_counted(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAILURE", "oom at 7")
    run = new_run(here)
    assert carry_on(run) == 1
    assert error_of(run)["reason"] == "oom"
    assert str(error_of(run)["message"]).startswith("ai-toolkit: RuntimeError: OOM during")
    said = (run.attempt(1) / "ranks" / "rank-00000.log").read_text()
    assert "its output ends:" in said
    assert "Traceback" in said
    monkeypatch.setenv("STAND_IN_FAILURE", "skip 6")
    assert carry_on(run) == 0
    skipped = {r["step"]: r for r in steps(run) if "skipped_images" in r}
    assert list(skipped) == [7]
    assert "loss" not in skipped[7]


def test_steps_that_stop_are_a_hang_that_ends_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAILURE", "hang at 6")
    run = new_run(here, train__hang_s=0.8)
    assert carry_on(run) == 1
    assert error_of(run)["reason"] == "hang"
    assert "took no step for 1 s after step 6" in str(error_of(run)["message"])


def test_a_start_that_ignores_the_checkpoint_is_ended(here: Path) -> None:
    run = new_run(here, train__steps=6)
    assert carry_on(run) == 0
    kit = here / "kit" / "run.py"
    kit.write_text(kit.read_text().replace('TRAIN.get("start_step", step)', "0"))
    assert carry_on(run, "train.steps=8") == 1
    assert "resumes from step 0 instead of 6" in str(error_of(run)["message"])


def test_more_than_one_rank_is_refused_with_the_reason(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = new_run(here)
    assert carry_on(run) == 1
    assert error_of(run)["reason"] == "config"
    assert "never adds up the gradients" in str(error_of(run)["message"])


@pytest.mark.parametrize("missing", ["AI_TOOLKIT", "run.py", "venv/bin/python"])
def test_what_is_missing_of_ai_toolkit_is_said_with_the_mend(
    here: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "AI_TOOLKIT":
        monkeypatch.delenv("AI_TOOLKIT")
    else:
        (here / "kit" / missing).unlink()
    run = new_run(here)
    assert carry_on(run) == 1
    assert error_of(run)["reason"] == "config"
    assert "env/create.sh ai-toolkit" in str(error_of(run)["message"])


def test_it_does_not_outlive_a_driver_that_is_killed(here: Path) -> None:
    run = new_run(here, train__steps=100_000)
    config = run.config()
    claim_attempt(run, config)
    driver = subprocess.Popen(
        [sys.executable, "-m", "finetune", str(run.path)], stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: any(r["step"] >= 2 for r in steps(run)))
        child = ai_toolkit_of(driver.pid)
    finally:
        driver.kill()
        driver.wait()
    # What init has not reaped yet has no command line any more.
    said = Path(f"/proc/{child}/cmdline")
    wait_for(lambda: not said.exists() or b"run.py" not in said.read_bytes())


@pytest.mark.xdist_group("flux")
def test_an_unknown_key_makes_no_run(
    flux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    monkeypatch.delenv("AI_TOOLKIT", raising=False)
    for asked, said in {
        "aitoolkit.train.noise_ofset=0.1": "did you mean aitoolkit.train.noise_offset?",
        "aitoolkit.model.quantize=true": "remove it and set flux.quantise",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(said)):
            open_attempt(TINY, [*paths(flux), "engine=aitoolkit", asked], kind="finetune")
    with pytest.raises(ConfigError, match="trains on one GPU, not on 2"):
        open_attempt(TINY, [*paths(flux), "engine=aitoolkit"], kind="finetune", gpus=2)
    assert not find_runs(tmp_path / "logs")
