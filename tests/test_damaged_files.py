"""Every command ends with an exit code, and names no bug, whatever the files of its run hold."""

import json
import os
import random
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis.__main__ import main as analysis
from configs.grid.study_file import load_grid
from configs.yaml12 import dump_yaml
from launch.__main__ import main as launch
from launch.plan import forecast
from launch.plan.study import make_plan
from launch.submit.study_cells import make_folder, rows_with
from runs.__main__ import main as runs_
from runs.folder import RunFolder
from runs.records import RecordWriter
from runs.study_folder import StudyFolder
from tests.real_runs import DIGITS, opened

TOKENS = [
    "null",
    "[]",
    "{}",
    '"x"',
    "-1",
    "1e999",
    "NaN",
    "true",
    "9" * 5000,
    "[" * 20_000,
    "²",
    "\0",
    '"\\ud800"',
]
FILES = ["", "null", "[]", "7", '"text"', "{}", "[[[]]]", "a: &a [*a]", "\0\0\0", "{" * 2000]


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        # Its name may have 108 bytes.
        os.chdir(path.parent)
        server.bind(path.name)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


# What may stand in place of a file: reading it would wait, or fill the memory.
SPECIAL: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "loop": lambda path: path.symlink_to(path.name),
    "socket": _socket,
    "sparse": _sparse,
}
# Under the load of all tests a command needs some seconds.
LONGEST_S = 60


def write_run(path: Path) -> None:
    """Write the records of two attempts, the first of which failed."""
    run = RunFolder(path)
    for number in (1, 2):
        run.attempt(number).mkdir(parents=True, exist_ok=True)
        writer = RecordWriter(path, attempt=number)
        writer.event("started", step=0)
        for step in range(1, 25):
            writer.write(step=step, images=8 * step, loss=2 / step, train_s=0.1 * step, data_s=0.01)
        writer.event("saved", step=24)
        writer.event(*(("done",) if number == 2 else ("failed",)), step=24, reason="oom")
        writer.close()
        run.note(number, time=1.0, began=1.0, ended=9.0, placement=[{"node": "a", "rank": 0}],
                 slurm={"job": "7"}, ranks=1)  # fmt: skip
    (run.attempt(1) / "error.json").write_text(json.dumps({"reason": "oom", "rank": 0}))
    (run.attempt(1) / "output.log").write_text("step 1\nTraceback\n")
    (run.attempt(2) / "gpu").mkdir(exist_ok=True)
    row = {"gpu": 0, "time": 5.0, "span_s": 4.0, "power_w": 100.0, "busy": 0.9}
    lines = [json.dumps({"gpus": [{"energy_j": 1.0}]}), json.dumps(row)]
    (run.attempt(2) / "gpu" / "n1.jsonl").write_text("\n".join(lines) + "\n")
    (run.attempt(2) / "overrides.yaml").write_text("train: {steps: 30}\n")


@pytest.fixture
def template(tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run and a study of four cells, as their writers leave them."""
    monkeypatch.delenv("DITBENCH_TRACEBACK")
    monkeypatch.setenv("SITE", "local")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Without Slurm.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    write_run(opened(DIGITS, ["train.steps=20", "train.global_batch=8"]).path)
    (run,) = logs.iterdir()
    run.rename(logs / "run-1")
    axes = {"train.global_batch": [8, 16], "seed": [0, 1]}
    file = logs / "study.yaml"
    file.write_text(dump_yaml({"kind": "study", "base": str(DIGITS.resolve()), "axes": axes}))
    study = StudyFolder(logs / "study-1")
    plan = make_plan(load_grid(file, []), with_forecast=False)
    make_folder(study, plan, rows_with(plan, []))
    for row in study.rows():
        write_run(study.cell(row.cell))
    (study.jobs / "7.json").write_text('{"first": 0, "rows": [0, 1, 2, 3]}\n')
    (study.jobs / "7.sbatch").write_text("#!/bin/bash\n")
    logs.rename(tmp_path / "template")
    return tmp_path / "template"


def mutate(path: Path, rng: random.Random) -> str:
    """Damage one file; return how."""
    content = path.read_bytes()
    at = rng.randrange(len(content) + 1)
    how = rng.choice(["cut", "bytes", "token", "word", "lines", "whole", "gone", "stray", *SPECIAL])
    if how in SPECIAL:
        path.unlink()
        SPECIAL[how](path)
    elif how == "cut":
        path.write_bytes(content[:at])
    elif how == "bytes":
        path.write_bytes(content[:at] + rng.randbytes(rng.randrange(1, 9)) + content[at + 2 :])
    elif how in ("token", "word"):
        words = content.decode().replace(",", " , ").replace("\n", " \n ").split(" ")
        i = rng.randrange(len(words))
        words[i] = rng.choice(TOKENS) if how == "token" else rng.choice(words)
        path.write_text(" ".join(words))
    elif how == "lines":
        lines = content.splitlines(keepends=True)
        rng.shuffle(lines)
        path.write_bytes(b"".join(lines[: rng.randrange(len(lines) + 1)]))
    elif how == "whole":
        path.write_text(rng.choice(FILES))
    elif how == "stray":
        other = path.with_name(rng.choice(["²", "STOP", "003", "latest", "x.json", "7"]))
        other.mkdir() if rng.random() < 0.5 else other.write_bytes(rng.randbytes(5))
    else:
        path.unlink()
    return how


def commands(logs: Path, path: Path) -> list[tuple[Callable[[list[str]], int], list[str]]]:
    """The commands that read a file, with their arguments."""
    study = logs / "study-1"
    cells = [folder for folder in path.parents if folder.parent.name == "cells"]
    run = str(cells[0] if cells else logs / "run-1")
    folder = str(study if study in path.parents else logs)
    read = ["runs", "runs --detect", "speed", "loss", "cells",
            "cells --ablation", "cells --scaling", "cost", "noise"]  # fmt: skip
    return [
        *((analysis, [*name.split(), folder]) for name in read),
        (analysis, ["target", folder, "--target", "loss<=1"]),
        (analysis, ["archive", folder, "--out", str(logs / "x.tar.xz")]),
        (analysis, ["report", folder, "--out", str(logs / "x.html")]),
        (analysis, ["export", folder, "--to", "csv", "--out", str(logs / "x.csv")]),
        (runs_, ["show", run]),
        *((launch, ["check", one]) for one in (str(logs / "study.yaml"), run, str(study))),
        (runs_, ["open", run]),
        (runs_, ["close", f"{run}/attempts/002", "--status", "1"]),
        (runs_, ["ended", f"{run}/attempts/001"]),
        (launch, ["status", folder]),
        (launch, ["why", run]),
        (launch, ["why", str(study)]),
        (launch, ["cancel", run]),
        (launch, ["cancel", str(study)]),
        (launch, ["plan", str(logs / "study.yaml"), "--script", "--force"]),
        (launch, ["plan", run, "--script"]),
    ]


@pytest.fixture
def _bounded_time() -> Iterator[None]:
    """Raise an error in a command that `signal.alarm` finds still at work."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end within {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_bounded_time")
@pytest.mark.parametrize(
    ("first", "count"), [(0, 150), pytest.param(1000, 3000, marks=pytest.mark.long)]
)
def test_damaged_files_end_commands_with_a_line_and_a_code(
    first: int, count: int, template: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if count < 1000:
        # The process that counts networks takes seconds to begin.
        monkeypatch.setattr(
            forecast,
            "ask",
            lambda queries: [forecast.ForecastAnswer(remark="not asked")] * len(queries),
        )
    logs = template.with_name("logs")
    files = sorted(path.relative_to(template) for path in template.rglob("*") if path.is_file())
    bugs: dict[str, str] = {}
    here = Path.cwd()
    for seed in range(first, first + count):
        rng = random.Random(seed)
        shutil.rmtree(logs, ignore_errors=True)
        shutil.copytree(template, logs)
        path = logs / rng.choice(files)
        how = mutate(path, rng)
        os.chdir(here)
        known = commands(logs, path)
        for main, arguments in rng.sample(known, 2):
            signal.alarm(LONGEST_S)
            try:
                code = main(arguments)
            except SystemExit as end:
                code = end.code
            except Exception as error:
                bugs.setdefault(repr(error)[:300], f"{seed} {how} {path} {arguments}")
                continue
            err = capsys.readouterr().err
            if code not in (0, 1, 2) or "a bug in ditbench" in err:
                line = next((one for one in err.splitlines() if "a bug" in one), f"exit {code}")
                place = line.rpartition("(")[2]
                bugs.setdefault(place, f"{seed} {how} {path} {arguments}: {line}")
    assert not bugs, "\n".join(bugs.values())
