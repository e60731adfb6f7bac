"""A study that was submitted before: resubmission, status and cancel."""

import json
import shutil
from pathlib import Path

import pytest

from runs.folder import RunFolder
from runs.study_folder import StudyFolder
from tests.launch.study_sandbox import end, end_all, submitted


def test_the_same_study_again_submits_only_failed_and_missing_cells(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a40_bs8", "a40_bs16", "a40_bs8_r2", "a100_bs8"))
    failed = end(folder, "a40_bs8", "failed", reason="crash")
    end(folder, "a40_bs16", "failed", reason="oom")
    end(folder, "a40_bs8_r2", "stopped", step=5)
    code, out, err = launch("submit", study)
    assert (code, "continues" in err) == (0, True)
    assert out.splitlines()[1:] == ["jobs: 110 to 112 (3 runs)", "report: 113"]
    texts = "".join((tmp_path / f"{job}.sbatch").read_text() for job in (110, 111, 112))
    left = ("a40_bs8", "a40_bs8_r2", "a100_bs8")
    assert all(f"/pretrain.sbatch {folder.cell(cell)}\n" in texts for cell in left)
    assert [record["event"] for record in failed.records()][-2:] == ["failed", "queued"]
    for cell in left:
        end(folder, cell, "done", step=10)
    for source in (study, folder.path):
        code, out, err = launch("submit", source)
        assert (code, out) == (0, f"study: {folder.path}\n")
        assert "nothing to run: no run is missing or failed" in err


def job_of(folder: StudyFolder, cell: str) -> str:
    """Return the job that was submitted for a cell."""
    return next(folder.cell(cell).glob("jobs/*.sbatch")).stem


@pytest.mark.parametrize("name", ["study.yaml", "cells.tsv"])
def test_a_damaged_folder_of_the_same_name_does_not_block_a_study(
    study: Path, launch, name: str
) -> None:
    folder = submitted(launch, study)
    damaged = folder.path.with_name(f"{folder.path.name}z")
    shutil.copytree(folder.path, damaged)
    (damaged / name).write_text("kind: [\nx\n")
    code, out, err = launch("submit", study)
    assert (code, out.splitlines()[0]) == (0, f"study: {folder.path}")
    assert f"passes over {damaged}: {damaged / name}" in err


def test_queued_and_running_cells_are_not_resubmitted_and_squeue_runs_once(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a40_bs8", "a40_bs16"))
    first, second = job_of(folder, "a40_bs8"), job_of(folder, "a40_bs16")
    (tmp_path / "queue").write_text(f"{first}|PENDING||||Priority\n{second}|RUNNING|n1|||None\n")
    assert launch("submit", folder.path)[:2] == (0, f"study: {folder.path}\n")
    (query,) = (tmp_path / "squeue").read_text().splitlines()
    assert "--array" in query
    assert f"--jobs={','.join(sorted([first, second]))},1 " in query


def test_rerun_includes_cells_out_of_memory_and_those_skipped_for_them(study: Path, launch) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a40_bs8", "a40_bs16", "a40_bs16_r2"))
    end(folder, "a40_bs8", "failed", reason="oom")
    # As earlier versions did with cells that need at least as much memory.
    for cell in ("a40_bs16", "a40_bs16_r2"):
        end(folder, cell, "skipped", reason="oom", proof="a40_bs8", message="m")
    assert "nothing to run" in launch("submit", folder.path)[2]
    code, out, _ = launch("rerun", folder.path)
    assert (code, out.splitlines()[1]) == (0, "jobs: 110 to 112 (3 runs)")


def test_a_grown_study_is_continued_and_a_narrowed_one_runs_its_own_cells(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    end_all(folder)
    code, out, err = launch("submit", study, "train.global_batch=8,16,32")
    assert (code, out.splitlines()[0]) == (0, f"study: {folder.path}")
    assert f"continues {folder.path}; --new starts another" in err
    assert {row.cell for row in folder.rows()[8:]} == {
        "a100_bs32", "a100_bs32_r2", "a40_bs32", "a40_bs32_r2",
    }  # fmt: skip
    code, out, _ = launch("submit", study, "train.global_batch=32", "resources.gpu=a40")
    assert (code, out.splitlines()[:2]) == (
        0, [f"study: {folder.path}", "jobs: 115 to 116 (2 runs)"],
    )  # fmt: skip


def test_a_changed_study_and_a_new_one_get_their_own_folders(study: Path, launch) -> None:
    first = submitted(launch, study)
    assert submitted(launch, study, "--new").path != first.path
    assert submitted(launch, study, "train.steps=11").path != first.path


def test_a_refused_second_job_leaves_the_first_and_can_be_submitted_later(
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
    (tmp_path / "queue").write_text("7|PENDING||||None\n")
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo Submitted batch job 8")
    code, out, _ = launch("submit", folder.path)
    assert (code, out.splitlines()[1]) == (0, "jobs: 8 (7 runs)")


def test_status_counts_the_cells_and_shows_their_jobs(
    study: Path, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a100_bs8",))
    job = job_of(folder, "a100_bs8")
    (tmp_path / "queue").write_text(f"{job}|PENDING||||Priority\n")
    code, out, err = launch("status", folder.path, "--json")
    states = {Path(row["run"]).name: row for row in json.loads(out)}
    assert (code, len(states)) == (0, 8)
    waiting = states["a100_bs8"]
    assert (waiting["state"], waiting["job"], waiting["why"]) == ("queued", job, "Priority")
    assert err.endswith(f"{folder.path}: 8 runs: 7 done, 1 queued\n")
    monkeypatch.chdir(folder.path.parent)
    assert launch("status", folder.path.name)[2].endswith("8 runs: 7 done, 1 queued\n")


def test_cancel_ends_a_study_with_one_scancel(study: Path, launch, command, tmp_path: Path) -> None:
    command("scancel", f'echo "$@" >>{tmp_path}/cancelled')
    folder = submitted(launch, study)
    names = {row.index: row.cell for row in folder.rows()}
    end_all(folder, but=tuple(names[index] for index in (0, 1, 5)))
    first = RunFolder(folder.cell(names[0]))
    first.record_event(1, "started", step=0)
    first.note(1, slurm={"job": "101"})
    (tmp_path / "queue").write_text("101|RUNNING|n1|||None\n102|PENDING||||None\n")
    code, out, _ = launch("cancel", folder.path)
    assert (code, out) == (
        0, f"{folder.path}: 1 running, which save and stop; 2 waiting or starting, now stopped\n",
    )  # fmt: skip
    (words,) = (tmp_path / "cancelled").read_text().splitlines()
    assert sorted(words.split()) == ["101", "102", "106"]
    last = [list(RunFolder(folder.cell(names[i])).records())[-1]["event"] for i in (0, 1, 5)]
    assert last == ["started", "stopped", "stopped"]


def turns(folder: StudyFolder) -> list[tuple[str, str, int]]:
    """Return the turns that are left, as cell, session and last step."""
    lines = (folder.jobs / "local.txt").read_text().splitlines()
    words = [(cell, *name.split(":")) for cell, name in (line.split() for line in lines)]
    return [(cell, session, int(end)) for cell, session, end in words]


def test_runs_of_an_interleaved_study_take_turns_and_go_on_where_each_was(
    study: Path, launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.slurm.executor.start_detached", lambda *_, **__: 2**22 + 1)
    words = ("resources.gpu=a40", "interleave=20", "log.every=1", "train.steps=120", "repeats=1")
    code, _, err = launch("submit", study, *words)
    assert (code, "not in jobs; submit with --local" in err) == (1, True)
    folder = submitted(launch, study, *words, "--local")
    first = turns(folder)
    cells = {"a40_bs8", "a40_bs16"}
    rounds = [first[place : place + 2] for place in range(0, 12, 2)]
    assert [{end for *_, end in one} for one in rounds] == [{n} for n in range(20, 140, 20)]
    assert all({cell for cell, *_ in one} == cells for one in rounds)
    starts = [one[0][0] for one in rounds]
    assert all(a != b for a, b in zip(starts[::2], starts[1::2], strict=True))
    end(folder, "a40_bs8", "paused", step=20)
    run = end(folder, "a40_bs16", "paused", step=31)
    for name, step in (("a40_bs8", 20), ("a40_bs16", 31)):
        RunFolder(folder.cell(name)).record_event(1, "saved", step=step)
    assert run.attempts() == [1]
    submitted(launch, folder.path, "--local")
    assert [(cell, end) for cell, _, end in turns(folder)] == [
        (cell, end) for cell, _, end in first if end > 20
    ]
    assert {session for _, session, _ in turns(folder)}.isdisjoint({one[1] for one in first})
    end(folder, "a40_bs8", "paused", step=40)
    assert "0 running, which save and stop; 2 waiting" in launch("cancel", folder.path)[1]
    last = [list(RunFolder(folder.cell(cell)).records())[-1]["event"] for cell in cells]
    assert last == ["stopped", "stopped"]
