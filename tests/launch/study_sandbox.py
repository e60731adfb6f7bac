"""A study to submit, shell scripts in place of Slurm, and helpers that end cells."""

import re
from pathlib import Path

import pytest

from configs.yaml12 import dump_yaml
from runs.folder import RunFolder
from runs.records import RecordWriter
from runs.study_folder import StudyFolder
from tests.launch.conftest import DIGITS

TINY = {"model.width": 32, "model.heads": 4, "model.depth": 1, "train.steps": 10}


@pytest.fixture(autouse=True)
def _slurm(command, tmp_path: Path) -> None:
    """A cluster that accepts every job and numbers them from 101."""
    command("sinfo", r"""[[ $* == *%D* ]] || printf 'gpu*|2-00:00:00\n'""")
    command(
        "sbatch",
        f"""[[ $1 == --test-only ]] && exit 0
        n=$(($(cat {tmp_path}/jobs 2>/dev/null || echo 100) + 1)); echo $n >{tmp_path}/jobs
        cp "$1" {tmp_path}/$n.sbatch; echo Submitted batch job $n""",
    )
    command("squeue", f'echo "$@" >>{tmp_path}/squeue; cat {tmp_path}/queue 2>/dev/null; exit 0')
    command("sacct", "exit 1")
    command("srun", "exit 0")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of two GPUs x two batches, repeated twice."""
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
    code, out, err = launch("submit", *words)
    assert code == 0, err
    return StudyFolder(Path(out.splitlines()[0].removeprefix("study: ")))


def end(study: StudyFolder, cell: str, event: str, **fields: object) -> RunFolder:
    """Write the records of a cell whose run ended with this event."""
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


def lines(tmp_path: Path) -> list[tuple[str, str]]:
    """Return the line of every submitted job, in order, and what it waits for; "" for none."""
    scripts = sorted(tmp_path.glob("*.sbatch"), key=lambda file: int(file.stem))
    found = []
    for text in (file.read_text() for file in scripts):
        name = re.search(r"^#SBATCH --job-name=.*-[0-9a-f]{4}-?(\d*)$", text, re.M)
        awaited = re.search(r"^#SBATCH --dependency=(.*)$", text, re.M)
        found.append((name[1] if name else "", awaited[1] if awaited else ""))
    return found
