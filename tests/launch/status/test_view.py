"""`status` of a folder of 44 runs, as whole texts by the width of the terminal."""

import json
import os
import re
from pathlib import Path

import pytest

from configs.schema.study import COLUMNS
from runs.folder import RunFolder

GOLDEN = Path(__file__).parent / "golden"
NOON = 1_900_000_000.0
STUDY = "layouts-1121-101500-aaaa"


def make(folder: Path, *events: str, at: int = 0, lr: float = 3e-4, steps: int = 0) -> RunFolder:
    """Write a run that recorded two training steps, the last of them `steps`, before its end."""
    run = RunFolder(folder)
    run.attempt(1).mkdir(parents=True)
    run.config_file.write_text(
        f"kind: pretrain\nseed: 0\ntrain: {{steps: 1000}}\noptimizer: {{lr: {lr}}}\n"
        "checkpoint: {every: 500, asynchronous: false}\nsample: {every: null}\n"
    )
    records: list[dict[str, object]] = [{"event": events[0]}]
    records += [
        {"step": n, "loss": 1.0, "time": NOON + n / 10} for n in (steps - 10, steps) if steps
    ]
    records += [{"event": event, "reason": "nan", "step": steps} for event in events[1:]]
    lines = [json.dumps({"time": NOON + at, "attempt": 1} | record) for record in records]
    run.metrics_file.write_text("\n".join(lines) + "\n")
    return run


def start(run: RunFolder, job: str) -> None:
    run.note(1, slurm={"job": job, "nodelist": f"node{job[-1]}"})


@pytest.fixture
def runs(site: Path, command, tmp_path: Path) -> Path:
    """31 runs that are done, two that train, one that samples, others, and a study."""
    for n in range(31):
        make(site / f"digits-1120-0{n:05}-1a2b", "started", "done", at=n, steps=1000)
    for n, lr in enumerate((1e-3, 3e-3)):
        run = make(site / f"digits-1121-09300{n}-3c4d", "started", at=100 + n, lr=lr, steps=300)
        start(run, f"647021{n}")
    drawing = make(site / "digits-1121-093002-3c4d", "started", at=102, lr=1e-2, steps=1000)
    with drawing.metrics_file.open("a") as file:
        file.write(json.dumps({"time": NOON, "attempt": 1, "event": "saved", "step": 1000}) + "\n")
    start(drawing, "6470212")
    make(site / "digits-1121-093003-3c4d", "started", "failed", at=103, lr=1.0, steps=20)
    stopped = make(site / "digits-1121-093004-3c4d", "started", "stopped", at=104, steps=61)
    stopped.stop_file.touch()
    lost = make(site / "imagenet64-ablation-of-the-warmup-6470199", "started", at=10, steps=150)
    start(lost, "6470199")
    study = site / STUDY
    (study / "jobs").mkdir(parents=True)
    (study / "study.yaml").write_text("base: x.yaml\n")
    cells = [f"width{w}_lr{lr}_accumulate4" for w in (64, 128, 256) for lr in (0.001, 0.01)]
    for n, cell in enumerate(cells[:2]):
        start(make(study / "cells" / cell, "started", at=200, steps=500 + 50 * n), f"647030{n}")
    for n, cell in enumerate(cells[2:], start=2):
        run = make(study / "cells" / cell, "queued", at=190)
        run.attempt(1).rmdir()
        (run.path / "jobs").mkdir()
        (run.path / "jobs" / f"647030{n}.sbatch").touch()
    lines = [f"{n}\t{n}\t{cell}\t1\t1x1-a40\t{n}" for n, cell in enumerate(cells)]
    (study / "cells.tsv").write_text("\n".join(["\t".join(COLUMNS), *lines]) + "\n")
    queue = [
        *(f"647021{n}|RUNNING|node{n}|3:0{n}:15|2026-11-21T09:30:00|None" for n in range(3)),
        *(f"647030{n}|RUNNING|node{n}|45:10|2026-11-21T10:15:00|None" for n in range(2)),
        "6470302|PENDING||4:00:00|2031-03-01T10:00:00|Resources",
        *(f"647030{n}|PENDING||4:00:00|N/A|Dependency" for n in (3, 4, 5)),
    ]
    (tmp_path / "queue").write_text("\n".join(queue) + "\n")
    command("squeue", f"cat {tmp_path}/queue")
    command("sacct", "exit 1")
    return site


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("name", ["", STUDY])
def test_the_table_matches_the_golden_text(
    width: int, name: str, runs: Path, launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = launch("status", *([runs / name] if name else []))
    text = re.sub(r"\d\d:\d\d:\d\d$", "HH:MM:SS", out + err, count=1, flags=re.MULTILINE)
    text = text.replace(str(runs), "/LOGS")
    golden = GOLDEN / f"{'study' if name else 'logs'}-{width}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text)
    assert (code, text) == (0, golden.read_text())
    assert max(map(len, out.splitlines()[1:])) <= width


def test_everything_is_shown_on_demand(runs: Path, launch) -> None:
    _, out, _ = launch("status", "--all")
    assert len(out.splitlines()) == 1 + 1 + 43
    assert "left out" not in out
