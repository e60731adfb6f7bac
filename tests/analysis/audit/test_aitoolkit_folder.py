"""`audit` of a folder with ai-toolkit's own output: timeline, clocks, pauses, mixed runs."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from analysis.__main__ import main

START = 1_760_000_000.0
IMAGE_S, STEP_S, LOAD_S = 17.0, 2.0, 100.0


def write_run(
    folder: Path,
    *,
    steps: int = 500,
    every: int = 100,
    images: int = 4,
    begin: float = START,
    pause: tuple[int, float] | None = None,
    side: int = 8,
    first: int = 0,
) -> float:
    """Samples of a run as ai-toolkit names them; when the last one was saved."""
    samples = folder / "samples"
    samples.mkdir(parents=True, exist_ok=True)
    now = begin + LOAD_S
    for step in range(first, steps + 1, every):
        if step > first:
            now += every * STEP_S
        if pause and step == pause[0]:
            now += pause[1]
        for number in range(images):
            now += IMAGE_S
            name = f"{round(now * 1000)}__{step:09d}_{number}.jpg"
            Image.new("RGB", (side, side)).save(samples / name)
    return now


@pytest.fixture
def audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The exit code and JSON of `audit FOLDER --json`."""

    def run(*flags: str) -> tuple[int, dict[str, Any]]:
        code = main(["audit", str(tmp_path / "lora"), "--json", *flags])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_the_timeline_comes_from_the_names_of_samples(tmp_path: Path, audit: Any) -> None:
    write_run(tmp_path / "lora")
    code, answer = audit()
    assert code == 0
    assert [row["step"] for row in answer["timeline"]] == [0, 100, 200, 300, 400, 500]
    for row in answer["timeline"]:
        assert row["images"] == 4
        assert row["image_s"] == pytest.approx(IMAGE_S)
    assert answer["timeline"][1]["steps_s"] == pytest.approx(100 * STEP_S)
    assert answer["timeline"][0]["time"] == "2025-10-09 08:55:17"
    seconds = {row["clock"]: row["seconds"] for row in answer["clocks"]}
    assert seconds["steps alone"] == pytest.approx(500 * STEP_S)
    assert seconds["with samples on the way"] == pytest.approx(500 * STEP_S + 20 * IMAGE_S)
    assert answer["mixture"] == answer["pauses"] == []


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("1000s", "steps alone (sample names)"),
        ("22.4min", "with samples on the way (sample names)"),
        ("1408", "with the first and last samples (sample names)"),
        ("0.5h", "longer than all of these by 392 s: with loading, or a job's"),
        ("700s", "shorter than all of these by 300 s"),
        ("1150s", "none of these, but between them"),
    ],
)
def test_a_runtime_is_traced_to_its_clock(
    tmp_path: Path, audit: Any, runtime: str, expected: str
) -> None:
    write_run(tmp_path / "lora")
    assert expected in audit("--runtime", runtime)[1]["runtime"]


def test_a_pause_is_told_with_its_length(tmp_path: Path, audit: Any) -> None:
    write_run(tmp_path / "lora", pause=(300, 400.0))
    (pause,) = audit()[1]["pauses"]
    assert pause == (
        "steps 200 to 300 took 3.0 times as long as others: a pause of about 400 s"
    )  # fmt: skip


def test_a_run_begun_anew_in_the_same_folder_is_two(tmp_path: Path, audit: Any) -> None:
    end = write_run(tmp_path / "lora")
    write_run(tmp_path / "lora", steps=200, begin=end + 500)
    code, answer = audit("--runtime", "1000s")
    assert code == 1
    assert (
        "steps go back from 500 to 0: another run, or the same one started over"
        in (answer["mixture"][0])
    )
    assert "2 parts, so" in answer["runtime"]
    assert [row["part"] for row in answer["timeline"]] == [1] * 6 + [2] * 3


def test_a_return_to_an_older_step_may_be_a_resume(tmp_path: Path, audit: Any) -> None:
    end = write_run(tmp_path / "lora", steps=300)
    write_run(tmp_path / "lora", begin=end, first=200)
    code, answer = audit()
    assert code == 1
    assert "from 300 to 200: a resume from an older checkpoint" in answer["mixture"][0]


def test_two_runs_at_the_same_time_and_unlike_samples_are_mixed(tmp_path: Path, audit: Any) -> None:
    write_run(tmp_path / "lora")
    write_run(tmp_path / "lora", begin=START + 130.0, side=16, images=3)
    code, answer = audit()
    assert code == 1
    signs = " ".join(answer["mixture"])
    assert "two runs wrote here at the same time" in signs
    assert "samples of 2 sizes (8 x 8, 16 x 16)" in signs


def test_the_loss_log_is_a_clock_beside_the_names(tmp_path: Path, audit: Any) -> None:
    write_run(tmp_path / "lora")
    with closing(sqlite3.connect(tmp_path / "lora" / "loss_log.db")) as log:
        log.execute("CREATE TABLE steps (step INTEGER PRIMARY KEY, wall_time REAL)")
        log.execute("CREATE TABLE metrics (step INTEGER, key TEXT, value_real REAL)")
        for step in range(1, 500):
            time = START + 200 + step * STEP_S + step // 100 * 4 * IMAGE_S
            log.execute("INSERT INTO steps VALUES (?, ?)", (step, time))
            log.execute("INSERT INTO metrics VALUES (?, 'loss/loss', 0.4)", (step,))
        log.commit()
    found = {row["clock"]: row for row in audit()[1]["clocks"] if row["from"] == "lora/loss_log.db"}
    assert found["steps alone"]["steps_per_s"] == pytest.approx(1 / STEP_S)
    assert found["with samples on the way"]["seconds"] == pytest.approx(
        498 * STEP_S + 4 * 4 * IMAGE_S
    )


def test_steps_that_a_log_says_were_skipped_are_told(tmp_path: Path, audit: Any) -> None:
    write_run(tmp_path / "lora", steps=100)
    lines = (
        "################\n# OOM during training step, skipping batch {}/3 #\n################\n"
    )
    (tmp_path / "lora" / "log.txt").write_text("begun\n" + lines.format(1) + lines.format(2))
    assert audit()[1]["skipped"] == [
        "log.txt: 2 steps skipped for lack of memory, the first at line 3"
    ]


def test_a_folder_without_samples_and_claims_with_a_runtime_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lora").mkdir()
    assert main(["audit", str(tmp_path / "lora")]) == 2
    assert "no samples of ai-toolkit in it" in capsys.readouterr().err
    (tmp_path / "claims.yaml").write_text("[]")
    assert main(["audit", str(tmp_path / "claims.yaml"), "--runtime", "1s"]) == 2
    write_run(tmp_path / "lora", steps=100)
    assert main(["audit", str(tmp_path / "lora"), "--runtime", "a while"]) == 2
    assert "expected a time such as 1744s" in capsys.readouterr().err


def test_steps_without_a_loss_in_the_log_are_told_as_skipped(tmp_path: Path) -> None:
    from analysis.detect.detectors import detect
    from analysis.read.find import read_logs

    with closing(sqlite3.connect(tmp_path / "loss_log.db")) as log:
        log.execute("CREATE TABLE steps (step INTEGER PRIMARY KEY, wall_time REAL)")
        log.execute("CREATE TABLE metrics (step INTEGER, key TEXT, value_real REAL)")
        for step in range(1, 60):
            log.execute("INSERT INTO steps VALUES (?, ?)", (step, START + step))
            log.execute("INSERT INTO metrics VALUES (?, 'learning_rate', 1e-4)", (step,))
            if step not in (20, 21):
                log.execute("INSERT INTO metrics VALUES (?, 'loss/loss', 0.4)", (step,))
        log.commit()
    (log,) = read_logs([str(tmp_path / "loss_log.db")])
    (skipped,) = [one for one in detect(log) if one.kind == "skipped"]
    assert skipped.step == 20
    assert skipped.detail.startswith("2 steps without a loss")
