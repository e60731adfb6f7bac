"""A cell that ran out of memory rules out those that need at least as much; nothing else does."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.grid.cells import make_cells
from configs.load import merge, resolve
from configs.schema import Pretrain, Study
from configs.yaml12 import dump_yaml
from runs.attempt.close import close_attempt
from runs.attempt.open import open_attempt
from runs.attempt.pruning import dominates, skip_if_ruled_out
from runs.folder import RunFolder
from runs.records import RecordWriter, state
from runs.study_folder import StudyFolder, StudyRow
from train.forecast.memory import dit_memory

BASE = {
    "model.width": 64, "model.depth": 4, "model.heads": 4, "train.global_batch": 64,
    "train.compile": False, "resources.gpu": "a40", "resources.gpus_per_node": 4,
}  # fmt: skip


def config(**changes: Any) -> Pretrain:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    found = resolve(merge({}, BASE | named), source="test")
    assert isinstance(found, Pretrain)
    return found


@pytest.mark.parametrize(
    ("proof", "other"),
    [
        ({}, {}),
        ({}, {"train__global_batch": 128}),
        ({"train__micro_batch": 4}, {"train__micro_batch": 8}),
        ({"train__micro_batch": 16}, {}),
        ({}, {"train__micro_batch": 16, "optimizer__lr": 0.5, "seed": 3, "train__steps": 7}),
        ({}, {"model__depth": 8, "model__width": 128}),
        ({"layout__shard": 4}, {"layout__shard": 1}),
        ({"activation_checkpointing__mode": "full"}, {"activation_checkpointing__mode": "none"}),
        ({"resources__gpu": "a100-80gb-sxm"}, {"resources__gpu": "a40"}),
        ({"resources__gpu": "a100-80gb-sxm"}, {"resources__gpu": "a100"}),
        ({}, {"resources__hours": 9, "log__every": 3, "question": "?"}),
    ],
)
def test_a_cell_that_needs_at_least_as_much_is_dominated(
    proof: dict[str, Any], other: dict[str, Any]
) -> None:
    assert dominates(config(**proof), config(**other))


@pytest.mark.parametrize(
    ("proof", "other"),
    [
        ({}, {"train__global_batch": 32}),
        ({"train__micro_batch": 8}, {"train__micro_batch": 4}),
        ({}, {"train__global_batch": 128, "train__micro_batch": 8}),
        ({"train__micro_batch": 4}, {"train__micro_batch": 16}),  # no longer accumulates
        ({}, {"model__depth": 8, "train__global_batch": 32}),
        ({"layout__shard": 1}, {"layout__shard": 4}),
        ({"activation_checkpointing__mode": "none"}, {"activation_checkpointing__mode": "full"}),
        ({}, {"train__global_batch": 128, "train__compile": True}),
        ({}, {"train__global_batch": 128, "train__precision": "fp32"}),
        ({}, {"train__global_batch": 128, "resources__gpu": "a100-80gb-sxm"}),
        ({}, {"train__global_batch": 128, "resources__gpu": "unheard-of"}),
        ({"resources__gpu": "a100"}, {"resources__gpu": "a40"}),  # it may be one of 40 GB
        ({}, {"train__global_batch": 128, "resources__gpus_per_node": 8}),
        ({"train__micro_batch": "auto"}, {"train__micro_batch": "auto"}),
        ({}, {"train__micro_batch": "auto"}),
        ({}, {"train__global_batch": 128, "data__source": "dummy"}),
    ],
)
def test_a_cell_that_might_need_less_is_not_dominated(
    proof: dict[str, Any], other: dict[str, Any]
) -> None:
    assert not dominates(config(**proof), config(**other))


def test_another_kind_of_run_is_never_dominated() -> None:
    other = resolve({"kind": "sample", "run": "x"}, source="test")
    assert not dominates(config(), other)


DEMANDS = st.fixed_dictionaries(
    {
        "train__global_batch": st.sampled_from([32, 64, 128, 256]),
        "train__micro_batch": st.sampled_from([None, 2, 4, 8]),
        "model__depth": st.sampled_from([2, 4, 12]),
        "model__width": st.sampled_from([64, 128]),
        "layout__shard": st.sampled_from([1, 2, 4]),
        "activation_checkpointing__mode": st.sampled_from(["none", "selective", "full"]),
    }
)


@settings(max_examples=500, deadline=None)
@given(
    DEMANDS,
    DEMANDS,
    st.sets(
        st.sampled_from(
            [
                "train__global_batch",
                "train__micro_batch",
                "model__depth",
                "model__width",
                "layout__shard",
                "activation_checkpointing__mode",
            ]
        )
    ),
)
def test_the_closed_form_agrees_that_a_dominated_cell_needs_no_less(
    one: dict[str, Any], other: dict[str, Any], changed: set[str]
) -> None:
    proof, larger = config(**one), config(**one | {name: other[name] for name in changed})
    try:
        found = [dit_memory(each, divide(each, world=4)) for each in (proof, larger)]
    except ConfigError:
        return
    if dominates(proof, larger):
        needed = [memory.total - memory.overhead for memory in found]
        assert needed[1] >= 0.97 * needed[0]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyFolder:
    """Return a study of three batches with queued cells."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("ENVIRONMENT", raising=False)
    one = Study(base="x", axes={"train.global_batch": [8, 16, 32]})
    folder = StudyFolder(tmp_path / "study")
    rows = []
    for index, cell in enumerate(make_cells(one, {}, source="x")):
        run = RunFolder(folder.cell(cell.name))
        (run.path / "attempts").mkdir(parents=True)
        run.config_file.write_text(dump_yaml(cell.config.model_dump()))
        RecordWriter(run.path, attempt=1).event("queued")
        rows.append(
            StudyRow(index=index, order=index, cell=cell.name, repeat=1, shape="s", digest="d",
                levels=cell.levels)
        )  # fmt: skip
    folder.write_rows(rows)
    return folder


def fail(study: StudyFolder, cell: str, reason: str, **facts: object) -> None:
    attempt = open_attempt(study.cell(cell), [], gpus=0)
    assert attempt is not None
    RunFolder(study.cell(cell)).note(int(attempt.name), **facts)
    (attempt / "error.json").write_text(f'{{"reason": "{reason}", "message": "m"}}')
    close_attempt(attempt, status=1)


def events(study: StudyFolder) -> dict[str, list[str]]:
    rows = study.rows()
    runs = {row.cell: RunFolder(study.cell(row.cell)) for row in rows}
    return {name: [record["event"] for record in run.records()] for name, run in runs.items()}


def test_out_of_memory_skips_larger_cells_before_they_start(study: StudyFolder, capsys) -> None:
    fail(study, "bs16", "oom")
    assert events(study) == {
        "bs8": ["queued"], "bs16": ["queued", "failed"], "bs32": ["queued", "skipped"],
    }  # fmt: skip
    last = state(RunFolder(study.cell("bs32")).records())
    assert last is not None
    assert (last["reason"], last["proof"]) == ("oom", "bs16")
    assert "skipped: bs32 needs at least the memory that bs16 lacked" in capsys.readouterr().err
    assert open_attempt(study.cell("bs32"), []) is None
    assert open_attempt(study.cell("bs8"), []) is not None
    assert RunFolder(study.cell("bs32")).attempts() == []


@pytest.mark.parametrize("reason", ["crash", "nan", "node", "nccl", "hang", "data", "host_oom"])
def test_nothing_else_skips_a_cell(study: StudyFolder, reason: str) -> None:
    fail(study, "bs8", reason, placement=[{"rank": 0, "gpu": "NVIDIA A40"}])
    assert events(study)["bs16"] == ["queued"]
    assert not skip_if_ruled_out(RunFolder(study.cell("bs16")), config())
    assert not study.proofs.exists()


def test_without_a_gpu_running_out_of_host_memory_prunes(study: StudyFolder) -> None:
    fail(study, "bs16", "host_oom", placement=[{"rank": 0, "cpu": "x"}])
    assert events(study)["bs32"] == ["queued", "skipped"]


def test_a_cell_that_has_begun_is_not_skipped(study: StudyFolder) -> None:
    assert open_attempt(study.cell("bs32"), []) is not None
    fail(study, "bs16", "oom")
    assert events(study)["bs32"] == ["queued"]
    assert open_attempt(study.cell("bs32"), []) is not None


def test_a_cell_that_is_queued_later_is_ruled_out_when_it_starts(study: StudyFolder) -> None:
    fail(study, "bs16", "oom")
    RecordWriter(study.cell("bs32"), attempt=1).event("queued")
    assert open_attempt(study.cell("bs32"), []) is None
    assert events(study)["bs32"] == ["queued", "skipped", "queued", "skipped"]


def test_a_cell_that_fits_when_it_runs_again_prunes_no_longer(study: StudyFolder) -> None:
    fail(study, "bs16", "oom")
    attempt = open_attempt(study.cell("bs16"), [], gpus=0)
    assert attempt is not None
    RecordWriter(study.cell("bs16"), attempt=2).event("done", step=1000)
    close_attempt(attempt, status=0)
    RecordWriter(study.cell("bs32"), attempt=1).event("queued")
    assert open_attempt(study.cell("bs32"), []) is not None
    assert list(study.proofs.iterdir()) == []


def test_a_run_outside_a_study_is_not_skipped(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    (run.path / "attempts").mkdir(parents=True)
    assert not skip_if_ruled_out(run, config())
