"""What ditbench makes of runs, in a study's folder or beside them, is no run of somebody else's."""

from pathlib import Path

from analysis.read.find import read_all
from analysis.read.machine import machine
from configs.load import resolve, to_tree
from configs.yaml12 import dump_yaml
from runs.folder import RunFolder
from runs.records import RecordWriter
from runs.study_folder import StudyFolder, StudyRow


def train(run: RunFolder) -> None:
    """Leave what a run of three steps leaves."""
    run.attempt(1).mkdir(parents=True)
    run.config_file.write_text(dump_yaml(to_tree(resolve({}, source="x"))))
    writer = RecordWriter(run.path, attempt=1)
    writer.event("started", step=0)
    for step in (1, 2, 3):
        writer.write(step=step, images=8 * step, loss=1.0, train_s=0.1 * step)
    writer.event("done", step=3)
    writer.close()


def test_only_the_cells_of_a_study_are_read(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "study-1")
    run = RunFolder(study.cell("bs8"))
    train(run)
    rows = "\n".join(f"{n},{1 / n},80" for n in range(1, 9))
    (tmp_path / "elsewhere").mkdir()
    for folder in (study.path, tmp_path / "elsewhere"):
        (folder / "rates.csv").write_text(f"step,loss,images_per_s\n{rows}\n")
    row = StudyRow(index=0, order=0, cell="bs8", repeat=1, shape="s", digest="", levels={"a": 8})
    assert len(read_all([str(study.path)]).logs) == 2
    study.write_rows([row])
    assert [log.name for log in read_all([str(study.path)]).logs] == ["bs8"]
    found = [log.name for log in read_all([str(tmp_path)]).logs]
    assert found == ["bs8", f"{tmp_path.name}/elsewhere/rates.csv"]


def test_when_an_attempt_ran_is_no_fact_of_its_machine() -> None:
    facts = {"attempt": 1, "time": 1.0, "began": 2.0, "ended": 3.0, "ranks": 2}
    assert machine(facts) == machine({"ranks": 2})


def test_the_table_beside_a_report_is_no_run(tmp_path: Path) -> None:
    for name, first in (("report", "run,"), ("own", "")):
        (tmp_path / f"{name}.csv").write_text(f"{first}step,loss\n{first}1,2.0\n{first}2,1.5\n")
        (tmp_path / f"{name}.html").touch()
    assert [log.path.name for log in read_all([str(tmp_path)]).logs] == ["own.csv"]


def test_the_output_of_jobs_and_tables_of_runs_beside_them_are_no_runs(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    train(run)
    run.note(1, slurm={"job": "123"})
    text = "\n".join(f"step {n} loss {1 / n:.4f}" for n in range(1, 9))
    for name in ("pretrain-123.out", "other-124.out"):
        (tmp_path / name).write_text(text)
    (tmp_path / "runs.csv").write_text("run,step,loss\nx,1,2.0\nx,2,1.5\n")
    names = [log.path.name for log in read_all([str(tmp_path)]).logs]
    assert names == [run.name, "other-124.out"]
