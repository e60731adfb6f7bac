"""A study whose cells fail alike in a row stops; cells that fail on their own account do not."""

from pathlib import Path

import pytest

from configs.errors import ConfigError
from configs.load import resolve, to_tree
from configs.yaml12 import dump_yaml
from runs.attempt.open import open_attempt
from runs.attempt.pruning import skip_after_alike
from runs.folder import RunFolder
from runs.records import Record
from runs.state.fold import run_state
from runs.study_folder import StudyFolder, StudyRow

CELLS = ("s1", "s2", "s3", "waiting")


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    """Four cells with nothing but their seed between them, all of them queued."""
    study = StudyFolder(tmp_path / "study")
    (study.path / "cells").mkdir(parents=True)
    study.study_file.write_text("base: x.yaml\nstop_after: 3\n")
    study.write_rows(
        StudyRow(index=i, order=i, cell=name, repeat=1, shape="s", digest="", levels={"seed": i})
        for i, name in enumerate(CELLS)
    )
    for number, name in enumerate(CELLS):
        (study.cell(name) / "attempts").mkdir(parents=True)
        tree = to_tree(resolve({"seed": number, "train": {"global_batch": 64}}, source="test"))
        (study.cell(name) / "config.yaml").write_text(dump_yaml(tree))
        RunFolder(study.cell(name)).record_event(1, "queued")
    return study


def end(study: StudyFolder, cell: str, event: str = "failed", **why: object) -> str | None:
    run = RunFolder(study.cell(cell))
    run.record_event(1, event, **why)
    return skip_after_alike(run, run_state(run))


def last(study: StudyFolder, cell: str) -> Record:
    return list(RunFolder(study.cell(cell)).records())[-1]


def test_the_third_failure_alike_skips_what_waits_and_names_the_first(study: StudyFolder) -> None:
    for cell, step in (("s2", 3), ("s1", 5)):
        assert end(study, cell, reason="crash", message=f"no attribute x in {cell}, {step}") is None
    said = end(study, "s3", reason="crash", message="no attribute x in s3, 12")
    assert said is not None
    assert said.startswith("1 waiting cells are skipped: the last 3 cells failed alike, first s2")
    skipped = last(study, "waiting")
    assert (skipped["event"], skipped["reason"], skipped["proof"]) == ("skipped", "crash", "s2")
    assert f"rerun {study.path}" in skipped["message"]
    assert open_attempt(study.cell("waiting"), []) is None


@pytest.mark.parametrize(
    "ends",
    [
        [("crash", "one"), ("crash", "two"), ("crash", "one")],
        [("crash", "one"), ("data", "one"), ("crash", "one")],
        [("nan", "one")] * 3,
        [("oom", "one")] * 3,
        [("node", "one")] * 3,
    ],
)
def test_failures_that_differ_or_belong_to_a_cell_skip_nothing(
    ends: list[tuple[str, str]], study: StudyFolder
) -> None:
    for cell, (reason, message) in zip(CELLS, ends, strict=False):
        assert end(study, cell, reason=reason, message=message) is None
    assert last(study, "waiting")["event"] == "queued"


def test_a_cell_that_is_done_between_restarts_the_count(study: StudyFolder) -> None:
    study.study_file.write_text("base: x.yaml\nstop_after: 2\n")
    end(study, "s1", reason="crash", message="m")
    end(study, "s2", "done", step=10)
    assert end(study, "s3", reason="crash", message="m") is None
    assert last(study, "waiting")["event"] == "queued"


def test_a_study_may_go_on_after_any_number(study: StudyFolder) -> None:
    study.study_file.write_text("base: x.yaml\nstop_after: null\n")
    assert not any(end(study, cell, reason="crash", message="m") for cell in CELLS[:3])


def test_a_start_that_a_config_prevents_counts_too(
    study: StudyFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    for cell in CELLS[:3]:
        with pytest.raises(ConfigError, match="does not divide"):
            open_attempt(study.cell(cell), [], nodes=3, gpus=1)
    assert "1 waiting cells are skipped: the last 3 cells failed alike" in capsys.readouterr().err
    assert open_attempt(study.cell("waiting"), [], nodes=3, gpus=1) is None
