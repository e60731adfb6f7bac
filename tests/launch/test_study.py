"""A study becomes a folder and an array per resource shape. The Slurm here is made of shell."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from configs.load import read_tree
from configs.pruning import settle_cell
from configs.records import RecordWriter
from configs.run import ROOT, RunFolder, find_runs
from configs.study_folder import StudyFolder
from configs.yaml12 import dump_yaml

from .conftest import DIGITS
from .test_dry_run import GOLDEN, executed, stable

TINY = {"model.width": 32, "model.heads": 4, "model.depth": 1, "train.steps": 10}


@pytest.fixture(autouse=True)
def _slurm(command, tmp_path: Path) -> None:
    """A cluster that takes everything, and counts its jobs from 101 on."""
    command("sinfo", r"""[[ $* == *%D* ]] || printf 'gpu*|2-00:00:00|1-8\n'""")
    command(
        "sbatch",
        f"""[[ $1 == --test-only ]] && exit 0
        n=$(($(cat {tmp_path}/jobs 2>/dev/null || echo 100) + 1)); echo $n >{tmp_path}/jobs
        cp "$1" {tmp_path}/$n.sbatch; echo Submitted batch job $n""",
    )
    command("squeue", f'echo "$@" >>{tmp_path}/squeue; cat {tmp_path}/queue 2>/dev/null; exit 0')
    command("sacct", "exit 1")
    command("srun", "exit 0")
    command("scontrol", "echo 'MaxArraySize            = 1001'")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two GPUs x two batches, twice."""
    file = tmp_path / "gpus.yaml"
    tree = {
        "kind": "study",
        "question": "Which GPU?",
        "base": str(DIGITS),
        "set": TINY,
        "axes": {"resources.gpu": ["a40", "a100"], "train.global_batch": [8, 16]},
        "repeats": 2,
        "throttle": 3,
    }
    file.write_text(dump_yaml(tree))
    return file


def submitted(launch, *words: str | Path) -> StudyFolder:
    code, said, remarks = launch("submit", *words)
    assert code == 0, remarks
    return StudyFolder(Path(said.splitlines()[0].removeprefix("study: ")))


def end(study: StudyFolder, cell: str, event: str, **fields: object) -> RunFolder:
    """Let a cell have run, to this event."""
    run = RunFolder(study.cell(cell))
    number = max(run.attempts(), default=0) + 1
    run.attempt(number).mkdir()
    writer = RecordWriter(run.path, attempt=number)
    writer.event("started", step=0)
    writer.event(event, **fields)
    writer.close()
    return run


def end_all(study: StudyFolder, event: str = "done", *, but: tuple[str, ...] = ()) -> None:
    for row in study.rows():
        if row.cell not in but:
            end(study, row.cell, event, step=10)


def array_lines(tmp_path: Path) -> list[str]:
    """`--array` of every job that sbatch got, in order; empty for one that is no array."""
    scripts = sorted(tmp_path.glob("*.sbatch"), key=lambda file: int(file.stem))
    found = (re.search(r"^#SBATCH --array=(.*)$", file.read_text(), re.M) for file in scripts)
    return [match[1] if match else "" for match in found]


def test_the_scripts_of_a_study_are_these(
    study: Path, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.errand.new_id", lambda: "1120-093000-1a2b")
    code, said, _ = launch("submit", study, "--dry-run", "--", "--account=lab_1", "--exclusive")
    assert code == 0
    golden = GOLDEN / "study.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(stable(said, tmp_path))
    assert stable(said, tmp_path) == golden.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commands", "gpus.yaml"]


def test_a_study_becomes_a_folder_two_arrays_and_a_report(
    study: Path, launch, site: Path, tmp_path: Path
) -> None:
    code, said, remarks = launch("submit", study)
    folder = StudyFolder(Path(said.splitlines()[0].removeprefix("study: ")))
    assert said.splitlines()[1:] == [
        "array: 101 (4 runs, 1x1-a100-4.0h-8cpu)",
        "array: 102 (4 runs, 1x1-a40-4.0h-8cpu)",
        "report: 103",
    ]
    assert (code, folder.path.parent) == (0, site)
    assert array_lines(tmp_path) == ["0-3%3", "0-3%3", ""]
    rows = folder.rows()
    assert [row.index for row in rows] == list(range(8))
    assert sorted(row.order for row in rows) == list(range(8))
    assert {row.shape for row in rows[:4]} == {"1x1-a100-4.0h-8cpu"}
    assert {(row.cell, row.repeat) for row in rows} == {
        (f"{gpu}_bs{batch}{again}", repeat)
        for gpu in ("a40", "a100") for batch in (8, 16) for again, repeat in (("", 1), ("_r2", 2))
    }  # fmt: skip
    for row in rows:
        run = RunFolder(folder.cell(row.cell))
        config = run.config()
        assert (config.resources.gpu, config.question) == (
            row.levels["resources.gpu"],
            "Which GPU?",
        )
        assert config.train.global_batch == row.levels["train.global_batch"]
        assert [record["event"] for record in run.records()] == ["queued"]
    assert "#SBATCH --dependency=afterany:101:102" in (tmp_path / "103.sbatch").read_text()
    assert (tmp_path / "102.sbatch").read_text() == (folder.jobs / "102.sbatch").read_text()
    assert "export FIRST_CELL=4\n" in (tmp_path / "102.sbatch").read_text()
    assert "repeats: 2, alike to the seed" in remarks
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.path.rglob("*"))


def test_repeats_are_passes_over_all_cells_and_shapes_keep_that_order(study: Path, launch) -> None:
    rows = submitted(launch, study).rows()
    by_order = sorted(rows, key=lambda row: row.order)
    assert [row.repeat for row in by_order] == [1] * 4 + [2] * 4
    for shape in {row.shape for row in rows}:
        orders = [row.order for row in rows if row.shape == shape]
        assert orders == sorted(orders)


def test_the_same_study_again_submits_nothing_and_then_what_failed_or_is_missing(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a40_bs8", "a40_bs16", "a40_bs8_r2", "a100_bs8"))
    failed = end(folder, "a40_bs8", "failed", reason="crash")
    end(folder, "a40_bs16", "failed", reason="oom")
    end(folder, "a40_bs8_r2", "stopped", step=5)
    lost = next(row for row in folder.rows() if row.cell == "a100_bs8")
    code, said, remarks = launch("submit", study)
    assert (code, "goes on with" in remarks) == (0, True)
    assert said.splitlines()[1:] == [
        "array: 104 (1 runs, 1x1-a100-4.0h-8cpu)",
        "array: 105 (2 runs, 1x1-a40-4.0h-8cpu)",
        "report: 106",
    ]
    assert f"export FIRST_CELL={lost.index}\n" in (tmp_path / "104.sbatch").read_text()
    assert [record["event"] for record in failed.records()][-2:] == ["failed", "queued"]
    for cell in ("a40_bs8", "a40_bs8_r2", "a100_bs8"):
        end(folder, cell, "done", step=10)
    for source in (study, folder.path):
        code, said, remarks = launch("submit", source)
        assert (code, said) == (0, f"study: {folder.path}\n")
        assert "nothing is missing, nothing has failed" in remarks


def test_what_is_queued_or_runs_is_not_submitted_again_and_squeue_is_asked_once(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a40_bs8", "a40_bs16"))
    rows = {row.cell: row.index for row in folder.rows()}
    (tmp_path / "queue").write_text(
        f"102_{rows['a40_bs8'] - 4}|PENDING||Priority\n102_{rows['a40_bs16'] - 4}|RUNNING|n1|None\n"
    )
    assert launch("submit", folder.path)[:2] == (0, f"study: {folder.path}\n")
    (asked,) = (tmp_path / "squeue").read_text().splitlines()
    assert "--array" in asked
    assert "--jobs=102,1 " in asked


def test_rerun_takes_what_ran_out_of_memory_too_and_what_that_ruled_out(
    study: Path, launch
) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a40_bs8", "a40_bs16", "a40_bs16_r2"))
    run = end(folder, "a40_bs8", "failed", reason="oom")
    ruled_out = settle_cell(run, list(run.records())[-1])
    assert sorted(ruled_out) == ["a40_bs16", "a40_bs16_r2"]
    assert "nothing is missing" in launch("submit", folder.path)[2]
    code, said, _ = launch("rerun", folder.path)
    assert (code, said.splitlines()[1]) == (0, "array: 104 (3 runs, 1x1-a40-4.0h-8cpu)")


def test_cells_are_added_to_a_folder_and_a_changed_one_is_refused(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    end_all(folder)
    code, said, _ = launch("submit", study, "train.global_batch=8,16,32", "--into", folder.path)
    assert (code, said.splitlines()[0]) == (0, f"study: {folder.path}")
    assert array_lines(tmp_path)[3:] == ["0-1%3", "0-1%3", ""]
    assert [row.cell for row in folder.rows()][8:] == [
        "a100_bs32", "a100_bs32_r2", "a40_bs32", "a40_bs32_r2",
    ]  # fmt: skip
    code, _, remarks = launch("submit", study, "train.steps=99", "--into", folder.path)
    assert (code, "has another config; leave --into out" in remarks) == (2, True)
    assert launch("submit", study, "--into", tmp_path)[0] == 2


def test_a_changed_study_and_a_new_one_get_folders_of_their_own(study: Path, launch) -> None:
    first = submitted(launch, study)
    assert submitted(launch, study, "--new").path != first.path
    assert submitted(launch, study, "train.steps=11").path != first.path


def test_several_values_on_a_plain_config_are_a_study(launch, site: Path) -> None:
    folder = submitted(launch, DIGITS, "optimizer.lr=1e-4,3e-4", "repeats=2", "train.steps=7")
    assert folder.path.name.startswith("digits-")
    assert len(find_runs(folder.path)) == 4
    assert read_tree(folder.study_file)["axes"] == {"optimizer.lr": [1e-4, 3e-4]}
    run = RunFolder(folder.cell("lr0.0003_r2")).config()
    assert (run.optimizer.lr, run.train.steps) == (3e-4, 7)


def test_a_refusal_of_the_first_array_leaves_nothing(
    study: Path, launch, command, site: Path
) -> None:
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo QOSMaxSubmitJob >&2; exit 1")
    code, _, remarks = launch("submit", study)
    assert (code, "QOSMaxSubmitJob" in remarks) == (1, True)
    assert [path.name for path in site.iterdir()] == [".code"]


def test_a_refusal_of_the_second_array_leaves_the_first_and_can_be_made_up_for(
    study: Path, launch, command, site: Path, tmp_path: Path
) -> None:
    command(
        "sbatch",
        f"""[[ $1 == --test-only ]] && exit 0
        [[ ! -e {tmp_path}/one ]] || {{ echo full >&2; exit 1; }}
        touch {tmp_path}/one; echo Submitted batch job 7""",
    )
    assert launch("submit", study)[0] == 1
    (path,) = site.glob("gpus-*")
    folder = StudyFolder(path)
    (tmp_path / "queue").write_text("".join(f"7_{i}|PENDING||None\n" for i in range(4)))
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo Submitted batch job 8")
    code, said, _ = launch("submit", folder.path)
    assert (code, said.splitlines()[1]) == (0, "array: 8 (4 runs, 1x1-a40-4.0h-8cpu)")


def test_an_array_is_no_larger_than_the_cluster_allows(
    study: Path, launch, command, tmp_path: Path
) -> None:
    command("scontrol", "echo 'MaxArraySize = 3'")
    submitted(launch, study)
    assert array_lines(tmp_path) == ["0-2%3", "0%3", "0-2%3", "0%3", ""]


def test_without_a_throttle_or_a_report_none_is_asked_for(
    study: Path, launch, tmp_path: Path
) -> None:
    submitted(launch, study, "throttle=null", "report=false")
    assert array_lines(tmp_path) == ["0-3", "0-3"]


def test_status_counts_the_cells_and_names_their_tasks(
    study: Path, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a100_bs8",))
    index = next(row.index for row in folder.rows() if row.cell == "a100_bs8")
    (tmp_path / "queue").write_text(f"101_{index}|PENDING||Priority\n")
    code, said, remarks = launch("status", folder.path, "--json")
    states = {Path(row["run"]).name: row for row in json.loads(said)}
    assert (code, len(states)) == (0, 8)
    waiting = states["a100_bs8"]
    assert (waiting["state"], waiting["job"], waiting["why"]) == (
        "queued", f"101_{index}", "Priority",
    )  # fmt: skip
    assert remarks == f"{folder.path}: 8 runs: 7 done, 1 queued\n"
    monkeypatch.chdir(folder.path.parent)
    assert launch("status", folder.path.name)[2].endswith("8 runs: 7 done, 1 queued\n")


def test_cancel_ends_a_study_with_one_scancel(study: Path, launch, command, tmp_path: Path) -> None:
    command("scancel", f'echo "$@" >>{tmp_path}/cancelled')
    folder = submitted(launch, study)
    names = {row.index: row.cell for row in folder.rows()}
    end_all(folder, but=tuple(names[index] for index in (0, 1, 5)))
    (tmp_path / "queue").write_text("101_0|RUNNING|n1|None\n101_1|PENDING||None\n")
    code, said, _ = launch("cancel", folder.path)
    assert (code, said) == (
        0, f"{folder.path}: 1 that run save and stop, 2 that waited are stopped\n",
    )  # fmt: skip
    (words,) = (tmp_path / "cancelled").read_text().splitlines()
    assert sorted(words.split()) == ["101_0", "101_1", "102_1"]
    last = [list(RunFolder(folder.cell(names[i])).records())[-1]["event"] for i in (0, 1, 5)]
    assert last == ["queued", "stopped", "stopped"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--into", "/nowhere"], "--into /nowhere: not a study's folder"),
        (["train.global_batch=7,9", "resources.nodes=2"], "cell a40_bs7: train.global_batch 7"),
        (["data.source=folder", "data.path=/nope"], "/nope: no such folder"),
    ],
)
def test_what_is_wrong_with_a_study_is_misuse_before_anything_is_written(
    words: list[str], message: str, study: Path, launch, site: Path
) -> None:
    code, said, remarks = launch("submit", study, *words)
    assert (code, said, message in remarks) == (2, "", True)
    assert not site.exists()


def test_into_is_for_studies_only(launch) -> None:
    code, _, remarks = launch("submit", DIGITS, "--new", "--dry-run")
    assert (code, "are for studies" in remarks) == (2, True)


def test_a_folder_is_gone_on_with_as_it_is(study: Path, launch) -> None:
    folder = submitted(launch, study)
    code, _, remarks = launch("submit", folder.path, "train.steps=3")
    assert (code, "submit the study with --into this folder" in remarks) == (2, True)


def test_the_array_runs_the_template_of_a_snapshot_on_the_folder(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    shell, script, source = executed((tmp_path / "101.sbatch").read_text(), tmp_path)
    assert (shell, source) == ("bash", str(folder.path))
    assert re.fullmatch(r".*/logs/\.code/[0-9a-f]{16}/jobs/pretrain\.sbatch", script)
    assert (ROOT / "jobs" / "report.sbatch").exists()
    assert sys.prefix in (tmp_path / "103.sbatch").read_text()


def test_a_report_that_is_refused_is_no_reason_to_fail(study: Path, launch, command) -> None:
    command(
        "sbatch",
        """[[ $1 == --test-only ]] && exit 0
        ! grep -q afterany "$1" || { echo no CPU jobs here >&2; exit 1; }
        echo Submitted batch job 7""",
    )
    code, said, remarks = launch("submit", study)
    assert (code, "report: " in said) == (0, False)
    assert "no report is queued: sbatch refuses the job: no CPU jobs here" in remarks
    assert "make it: bash jobs/report.sbatch /" in remarks
