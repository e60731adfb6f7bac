"""Runs by a fake ai-toolkit, which writes the job table, the loss log and the files."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from configs.errors import ConfigError
from finetune.aitoolkit.checkpoint import CheckpointCollector, metadata_step
from runs.attempt.open import claim, open_attempt
from runs.folder import RunFolder, find_runs
from runs.records import valid
from tests.finetune.aitoolkit_runs import (
    events,
    make_images,
    make_toolkit,
    new_run,
    run_attempt,
    signal_at,
    steps,
)
from tests.finetune.conftest import TINY, paths
from tests.slurm.cluster import wait_until


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with images, a fake ai-toolkit, and runs."""
    make_images(tmp_path / "images")
    monkeypatch.setenv("AI_TOOLKIT", str(make_toolkit(tmp_path / "kit")))
    return tmp_path


def error_of(run: RunFolder) -> dict[str, object]:
    return dict(json.loads((run.attempt(max(run.attempts())) / "error.json").read_text()))


def toolkit_child(parent: int) -> int:
    """Return the id of the ai-toolkit process that a process started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    (found,) = (child for child, line in lines.items() if b"run.py" in line)
    return found


def toolkit_process(run: RunFolder, attempt: int = 1) -> dict[str, object]:
    """Return the process section of the config that ai-toolkit got."""
    config = json.loads((run.attempt(attempt) / "aitoolkit" / "config.json").read_text())
    return dict(config["config"]["process"][0])


def test_its_steps_samples_and_checkpoints_become_those_of_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", "/our/modules")
    monkeypatch.setenv("LOCAL_RANK", "0")
    run = new_run(folder)
    assert run_attempt(run) == 0
    assert [r["event"] for r in run.records() if "event" in r] == [
        "started", "saved", "saved", "saved", "done",
    ]  # fmt: skip
    assert [r["step"] for r in events(run, "saved")] == [5, 9, 12]
    assert [r["step"] for r in steps(run)] == list(range(1, 13))
    # ai-toolkit counts steps from 0 and does not log the first.
    assert [r.get("loss") for r in steps(run)] == [None, *(1 / (1 + n) for n in range(1, 12))]
    clocks = [r["train_s"] for r in steps(run)]
    assert clocks == sorted(clocks)
    assert clocks[-1] >= 12 * 0.01
    last = events(run, "done")[0]
    assert all(last[f"{name}_s"] > 0 for name in ("setup", "load", "quantise", "cache", "sample"))
    samples = [r for r in run.records() if "drawn_images" in r]
    assert [(r["step"], r["drawn_images"]) for r in samples] == [(0, 2), (5, 2), (9, 2), (12, 2)]
    assert run.prompt_sample(0, 5).read_text() == "a thing at sea at 4"
    assert run.prompt_sample(1, 12).read_text() == "costs $5, not ${HOME} at 12"
    assert [metadata_step(file) for file in sorted(run.lora.iterdir())] == [4, 8, 12]
    environment = (run.attempt(1) / "aitoolkit" / "output.log").read_text().splitlines()[0]
    assert not {"HF_HUB_OFFLINE", "PYTHONPATH", "LOCAL_RANK"} & set(json.loads(environment))
    entry = run.manifest()["attempts"][0]
    assert entry["engine"] == "aitoolkit"


def test_triggers_are_filled_into_captions_in_a_folder_of_the_run(folder: Path) -> None:
    before = sorted(file.name for file in (folder / "images").iterdir())
    run = new_run(folder, train__steps=2)
    assert run_attempt(run) == 0
    caption = run.path / "cache" / "aitoolkit" / "0.txt"
    assert caption.read_text() == "a thing, the 0.\n"
    assert "trigger_word" not in toolkit_process(run)
    assert sorted(file.name for file in (folder / "images").iterdir()) == before


def test_both_files_of_a_save_of_wan_are_kept_resumed_and_published(folder: Path) -> None:
    own = {"model": {"arch": "wan22_14b"}, "sample": {"num_frames": 5}}
    run = new_run(folder, aitoolkit=own, checkpoint__keep=2)
    assert run_attempt(run) == 0
    assert [r["step"] for r in events(run, "saved")] == [5, 9, 12]
    stages = ("_high_noise", "_low_noise")
    published = {f"step-{n:09d}{stage}.safetensors" for n in (9, 12) for stage in stages}
    assert {file.name for file in run.lora.iterdir()} == published
    for name in ("step-000000009", "step-000000012"):
        files = {file.name for file in (run.checkpoints / name).glob("*.safetensors")}
        assert files == {f"lora{stage}.safetensors" for stage in stages}
    video = run.prompt_sample(0, 12).with_suffix(".webp")
    assert video.read_text() == "a thing at sea at 12"
    assert run_attempt(run, "train.steps=13") == 0
    assert events(run, "started")[1]["step"] == 12
    assert events(run, "done")[1]["step"] == 13
    output = (run.attempt(2) / "aitoolkit" / "output.log").read_text()
    assert "lora_000000012_" in output


def test_the_loss_on_images_held_out_is_recorded_at_the_steps_that_were_done(folder: Path) -> None:
    run = new_run(folder, data__trigger="a thing", validation__held_out=1, validation__every=4)
    assert run_attempt(run) == 0
    process: Any = toolkit_process(run)
    settings = process["train"]["validation_config"]
    (item,) = settings["validation_items"]
    assert Path(item["image_path"]).parent == folder / "images"
    assert item["prompt"].startswith("a thing, the ")
    trained = {file.stem for file in (run.path / "cache/aitoolkit").glob("*.png")}
    assert Path(item["image_path"]).stem not in trained
    assert settings["validation_sigmas"] == sorted(settings["validation_sigmas"])
    found = {r["step"]: r["held_out_loss"] for r in run.records() if "held_out_loss" in r}
    assert found == {1: 100.0, 5: 104.0, 9: 108.0}


def test_after_a_signal_it_saves_and_leaves_and_a_resume_continues_from_that_step(
    folder: Path,
) -> None:
    run = new_run(folder, train__steps=100_000, checkpoint__every=70_000, sample__every=None)
    assert run_attempt(run, meanwhile=lambda: signal_at(run, 6)) == 0
    saved = events(run, "saved")
    paused = events(run, "paused")
    assert len(saved) == len(paused) == 1
    assert saved[0]["step"] == paused[0]["step"] >= 6
    at = saved[0]["step"]
    assert run_attempt(run, f"train.steps={at + 5}") == 0
    assert events(run, "started")[1]["step"] == at
    assert toolkit_process(run, 2)["train"]["start_step"] == at  # type: ignore[index]
    assert toolkit_process(run, 1)["training_seed"] == 0
    assert toolkit_process(run, 2)["training_seed"] != 0
    records = [r for r in valid(run.records()) if "drawn_images" not in r]
    assert sorted(r["step"] for r in records) == list(range(1, at + 6))
    # Steps between the save and the exit are not recorded twice.
    assert len([r for r in records if r["attempt"] == 2]) == 5
    assert events(run, "done")[0]["step"] == at + 5
    assert events(run, "done")[0]["load_s"] > paused[0]["load_s"]


def test_a_resume_uses_the_newest_whole_checkpoint_whatever_the_file_times(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "0.3")
    run = new_run(folder)
    assert run_attempt(run) == 0
    newest, older, oldest = sorted(run.checkpoints.glob("step-*"), reverse=True)
    os.truncate(newest / "lora.safetensors", 20)
    (oldest / "lora.safetensors").chmod(0o644)
    assert run_attempt(run, "train.steps=14") == 0
    assert events(run, "started")[1]["step"] == 9 == int(older.name[5:])
    assert newest.with_suffix(".damaged").is_dir()
    assert events(run, "done")[1]["step"] == 14


def test_a_save_that_is_whole_before_it_is_reported_is_left_for_later(folder: Path) -> None:
    run = new_run(folder)
    collector = CheckpointCollector(folder / "root", run, keep=2)
    (folder / "root").mkdir()
    for name, step in (("lora_000000008", 8), ("lora", 10)):
        training = json.dumps({"step": step})
        save_file(
            {"x": np.zeros(1, np.float32)},
            folder / "root" / f"{name}.safetensors",
            metadata={"training_info": training},
        )
    assert [save.step for save in collector.new_saves(last=8)] == [8]
    assert [save.step for save in collector.new_saves(last=8)] == []
    assert [(save.step, save.is_last) for save in collector.new_saves(last=10)] == [(10, True)]


def test_without_anything_to_save_it_leaves_at_once(folder: Path) -> None:
    run = new_run(folder, train__steps=100_000)

    def stop() -> None:
        wait_until(lambda: run.attempts())
        run.stop_file.touch()

    assert run_attempt(run, meanwhile=stop) == 0
    stopped = events(run, "stopped")[0]
    assert stopped["step"] in (0, *(r["step"] for r in events(run, "saved")))


def test_signals_to_all_processes_do_not_end_it_unsaved(folder: Path) -> None:
    run = new_run(folder, train__steps=60, checkpoint__every=1000, sample__every=None)

    def disturb() -> None:
        wait_until(lambda: any(r["step"] >= 3 for r in steps(run)))
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            os.kill(toolkit_child(os.getpid()), number)

    assert run_attempt(run, meanwhile=disturb) == 0
    assert events(run, "done")[0]["step"] == 60


def test_running_out_of_memory_is_the_reason_and_a_skipped_step_is_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILURE", "oom at 7")
    run = new_run(folder)
    assert run_attempt(run) == 1
    assert error_of(run)["reason"] == "oom"
    assert str(error_of(run)["message"]).startswith("ai-toolkit: RuntimeError: OOM during")
    text = (run.attempt(1) / "ranks" / "rank-00000.log").read_text()
    assert "its output ends:" in text
    assert "Traceback" in text
    monkeypatch.setenv("FAKE_FAILURE", "skip 6")
    assert run_attempt(run) == 0
    skipped = {r["step"]: r for r in steps(run) if "skipped_images" in r}
    assert list(skipped) == [7]
    assert "loss" not in skipped[7]


def test_training_that_stops_stepping_is_ended_as_a_hang(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILURE", "hang at 6")
    run = new_run(folder, train__hang_s=0.8)
    assert run_attempt(run) == 1
    assert error_of(run)["reason"] == "hang"
    assert "took no step for 1 s after step 6" in str(error_of(run)["message"])


def test_a_start_that_ignores_the_checkpoint_is_ended(folder: Path) -> None:
    run = new_run(folder, train__steps=6)
    assert run_attempt(run) == 0
    script = folder / "kit" / "run.py"
    script.write_text(script.read_text().replace('TRAIN.get("start_step", step)', "0"))
    assert run_attempt(run, "train.steps=8") == 1
    assert "resumes from step 0 instead of 6" in str(error_of(run)["message"])


def test_more_than_one_rank_is_refused_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = new_run(folder)
    assert run_attempt(run) == 1
    assert error_of(run)["reason"] == "config"
    assert "never sums the gradients" in str(error_of(run)["message"])


@pytest.mark.parametrize("missing", ["AI_TOOLKIT", "run.py", "venv/bin/python"])
def test_a_missing_part_of_ai_toolkit_is_named_with_the_fix(
    folder: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "AI_TOOLKIT":
        monkeypatch.delenv("AI_TOOLKIT")
    else:
        (folder / "kit" / missing).unlink()
    run = new_run(folder)
    assert run_attempt(run) == 1
    assert error_of(run)["reason"] == "config"
    assert "env/create.sh ai-toolkit" in str(error_of(run)["message"])


def test_it_does_not_outlive_its_parent(folder: Path) -> None:
    run = new_run(folder, train__steps=100_000)
    config = run.config()
    claim(run, config, began=None)
    parent = subprocess.Popen(
        [sys.executable, "-m", "finetune", str(run.path)], stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: any(r["step"] >= 2 for r in steps(run)))
        child = toolkit_child(parent.pid)
    finally:
        parent.kill()
        parent.wait()
    # A dead process that init has not reaped yet has an empty command line.
    cmdline = Path(f"/proc/{child}/cmdline")
    wait_until(lambda: not cmdline.exists() or b"run.py" not in cmdline.read_bytes())


@pytest.mark.xdist_group("flux")
def test_an_unknown_key_makes_no_run(
    flux: Path, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI_TOOLKIT", str(make_toolkit(tmp_path / "kit")))
    for override, message in {
        "aitoolkit.train.noise_ofset=0.1": "did you mean aitoolkit.train.noise_offset?",
        "aitoolkit.train.lr=0.1": "remove it and set optimizer.lr",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(message)):
            open_attempt(TINY, [*paths(flux), "engine=aitoolkit", override], kind="finetune")
    with pytest.raises(ConfigError, match="trains on one GPU, not on 2"):
        open_attempt(TINY, [*paths(flux), "engine=aitoolkit"], kind="finetune", gpus=2)
    assert not find_runs(logs)
