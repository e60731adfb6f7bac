"""Runs are sent to wandb once, step by step, and written as one table."""

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from analysis.__main__ import main
from analysis.commands.export import tracked
from analysis.read.find import read_logs
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, the first of them resumed and with a sample at step 100."""
    monkeypatch.chdir(tmp_path)
    for rate in (4, 8):
        truth = SyntheticRun(steps_per_s=rate, intervals=30, resume_at=12 if rate == 4 else None,
                             lost_intervals=3, overrides=(f"data.workers={rate}",))  # fmt: skip
        generate_run(tmp_path / "logs" / f"r{rate}", truth)
    samples = tmp_path / "logs" / "r4" / "samples"
    samples.mkdir()
    Image.new("RGB", (8, 8), "red").save(samples / "step-000000100.png")
    return tmp_path / "logs"


class Wandb:
    """Stands for the package: keeps what it was sent, by run."""

    class Image(str):
        pass

    class errors:  # noqa: N801
        class Error(Exception):
            pass

    def __init__(self) -> None:
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.config: dict[str, Any] = {}

    @contextmanager
    def init(self, *, config: dict[str, Any], **options: str | bool) -> Iterator[Any]:
        rows = self.runs.setdefault(str(options["id"]), [])
        self.config = config
        summary = {"step": rows[-1]["step"]} if rows else {}
        yield SimpleNamespace(summary=summary, log=rows.append, define_metric=lambda *_, **__: None)


def test_wandb_gets_every_step_once(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    command = ["export", str(logs), "--to", "wandb", "--project", "mine"]

    def new_steps() -> dict[str, int]:
        assert main(command) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "new steps" in line]
        return {line.partition(":")[0]: int(line.split()[1]) for line in lines}

    records = logs / "r4" / "metrics.jsonl"
    whole = records.read_text()
    # As it was while the first attempt had done 14 of its 15 intervals; the 14th waits.
    records.write_text("".join(whole.splitlines(keepends=True)[: 2 + 14]))
    assert new_steps() == {"r4": 13, "r8": 30}
    records.write_text(whole)
    assert new_steps() == {"r4": 17, "r8": 0}
    assert new_steps() == {"r4": 0, "r8": 0}
    for rows in wandb.runs.values():
        assert [row["step"] for row in rows] == list(range(10, 310, 10))
    assert [row["step"] for row in wandb.runs["r4"] if "sample" in row] == [100]
    assert wandb.config["train.global_batch"] == 64


def test_samples_are_told_apart_by_prompt_and_only_steps_count(logs):
    folder = logs / "r4" / "samples"
    (folder / "step-best.png").write_bytes(b"")
    files = {"sample": folder / "step-000000100.png"}
    for name in ("prompt-00", "prompt-01"):
        files[f"sample/{name}"] = folder / name / "step-000000100.png"
        (folder / name).mkdir()
        files[f"sample/{name}"].write_bytes(b"")
    (log,) = read_logs([str(logs / "r4")])
    assert tracked(log).samples == {100: files}


def test_a_table_holds_the_steps_of_all_runs_with_attempts_joined(logs, capsys):
    out = logs.parent / "all.csv"
    for _ in range(2):
        assert main(["export", str(logs), "--to", "csv", "--out", str(out)]) == 0
        rows = list(csv.DictReader(out.read_text().splitlines()))
        found = [int(row["step"]) for row in rows if row["run"] == "r4"]
        assert found == list(range(10, 310, 10))
        assert len(rows) == 60
        assert float(rows[0]["images"]) == 640
        assert float(rows[0]["train_s"]) > 0


def test_a_spreadsheet_is_given_no_formula(logs, capsys):
    names = {"r4": '=HYPERLINK("x")', "r8": "@SUM"}
    for old, new in names.items():
        (logs / old).rename(logs / new)
        records = logs / new / "metrics.jsonl"
        records.write_text(records.read_text().replace('"loss"', '"+a": 1, "-b": 2, "loss"'))
    assert main(["export", str(logs), "--to", "csv", "--out", "table.csv"]) == 0
    table = Path("table.csv").read_text()
    head, *rows = csv.reader(table.splitlines())
    assert {"'+a", "'-b"} <= set(head)
    assert {row[0] for row in rows} == {"'-HYPERLINK--x--", "'-SUM"}
    assert float(rows[-1][head.index("'+a")]) == 1


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--to", "csv"], "--to csv needs --out"),
        (["--to", "wandb", "--out", "x"], "--to wandb takes no --out"),
        (["--to", "wandb"], "first: pip install wandb"),
        (["--to", "parquet", "--out", "x"], "first: pip install pyarrow"),
    ],
)
def test_what_is_missing_is_one_line(flags, why, logs, monkeypatch, capsys):
    for package in ("wandb", "pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, package, None)
    assert main(["export", str(logs), *flags]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1


def test_a_refusal_of_wandb_is_one_line_with_a_way_on(logs, monkeypatch, capsys):
    wandb = pytest.importorskip("wandb", reason="pip install wandb")

    def refuse(**_: object) -> None:
        raise wandb.errors.UsageError("No API key configured.\nUse `wandb login`")

    monkeypatch.setattr(wandb, "init", refuse)
    assert main(["export", str(logs), "--to", "wandb"]) == 2
    err = capsys.readouterr().err
    assert "wandb: No API key configured. Use `wandb login`" in err
    assert err.count("\n") == 1


def test_an_unknown_tracker_and_two_runs_of_one_name_are_refused(logs, capsys):
    with pytest.raises(SystemExit):
        main(["export", str(logs), "--to", "neptune"])
    assert "invalid choice: 'neptune'" in capsys.readouterr().err
    generate_run(logs / "again" / "r4", SyntheticRun(intervals=20))
    assert main(["export", str(logs), "--to", "csv", "--out", "x.csv"]) == 2
    assert "two of these runs have the same name" in capsys.readouterr().err
