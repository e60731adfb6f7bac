"""Studies on a real Slurm: a job for each run, a report, requeue, resubmission."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from configs.load import read_tree
from configs.yaml12 import dump_yaml
from runs.folder import RunFolder
from runs.records import Record
from runs.study_folder import StudyFolder
from tests.real_runs import events
from tests.slurm.checkout import Checkout, make_checkout
from tests.slurm.cluster import Cluster, wait_until

TINY = {
    "model.width": 32, "model.heads": 4, "model.depth": 1, "train.steps": 20,
    "sample.per_class": 1, "sample.steps": 2, "log.every": 2, "resources.hours": 0.25,
    "resources.cpus_per_gpu": 2,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A submitted study: its folder, and the job of its report."""

    study: StudyFolder
    report: str | None

    def run(self, cell: str) -> RunFolder:
        return RunFolder(self.study.cell(cell))

    def events(self, cell: str) -> list[str]:
        return events(self.run(cell))

    def last(self, cell: str) -> Record:
        return [record for record in self.run(cell).records() if "event" in record][-1]

    def job(self, cell: str) -> str:
        """Return the job that was submitted for a cell last."""
        scripts = self.study.cell(cell).glob("jobs/*.sbatch")
        return max(scripts, key=lambda file: file.stat().st_mtime_ns).stem


def submit(checkout: Checkout, *words: str | Path) -> Submitted:
    lines = checkout.launch("submit", *words).stdout.splitlines()
    fields = [line.partition(": ")[::2] for line in lines]
    return Submitted(
        study=StudyFolder(Path(fields[0][1])),
        report=next((what for name, what in fields if name == "report"), None),
    )


def write(checkout: Checkout, name: str, **keys: Any) -> Path:
    file = checkout.root.parent / f"{name}.yaml"
    base = checkout.root / "configs" / "pretrain" / "digits.yaml"
    tree = {"kind": "study", "base": str(base), **keys}
    tree["set"] = TINY | keys.get("set", {})
    file.write_text(dump_yaml(tree))
    return file


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.long)])
def grid(
    request: pytest.FixtureRequest, checkout: Checkout, cluster: Cluster
) -> tuple[Path, Submitted]:
    """Submit two GPUs x two batches, once or repeated."""
    file = write(
        checkout, f"my $(touch hacked); 'study' {request.param}", question="Which is faster?",
        repeats=request.param,
        axes={"resources.gpu": ["a40", "a100"], "train.global_batch": [8, 16]},
    )  # fmt: skip
    found = submit(checkout, file)
    cluster.wait(found.report, timeout=300)
    return file, found


def test_every_cell_is_a_job_and_reaches_done(
    grid: tuple[Path, Submitted], cluster: Cluster
) -> None:
    file, found = grid
    rows = found.study.rows()
    assert len(rows) == 4 * read_tree(file)["repeats"]
    for row in rows:
        assert found.events(row.cell) == ["queued", "started", "saved", "done"]
        (attempt,) = found.run(row.cell).entries()
        assert attempt["slurm"]["nodelist"].startswith(f"{row.levels['resources.gpu']}-")
        job = found.job(row.cell)
        assert attempt["slurm"]["job"] == job
        assert cluster.accounted(job)["State"] == "COMPLETED"


def test_the_report_is_made_after_all_cells(grid: tuple[Path, Submitted]) -> None:
    study = grid[1].study
    page = (study.path / "report.html").read_text()
    assert all(row.cell in page for row in study.rows())
    assert "train.global_batch" in (study.path / "ablation.txt").read_text()


def test_no_name_reached_a_shell(grid: tuple[Path, Submitted], checkout: Checkout) -> None:
    found = [path for path in checkout.root.parent.rglob("*hacked") if path != checkout.root]
    assert found == []
    assert not list(checkout.logs.rglob("*.pkl"))


@pytest.mark.usefixtures("several_jobs")
def test_a_job_that_is_requeued_goes_on_in_its_own_cell_and_a_study_is_cancelled(
    checkout: Checkout, cluster: Cluster
) -> None:
    file = write(
        checkout, "long", axes={"seed": [1, 2]}, report=False,
        set={"resources.gpu": "a40", "train.steps": 1000000, "checkpoint.every": 50},
    )  # fmt: skip
    found = submit(checkout, file)
    cells = [row.cell for row in found.study.rows()]
    cell = cells[0]
    job = found.job(cell)
    wait_until(lambda: "saved" in found.events(cell), timeout=180, what="a save")
    cluster.warn(job)
    cluster.end_requeue_hold(job)
    wait_until(lambda: found.events(cell).count("started") == 2, timeout=180, what="a resume")
    assert "paused" in found.events(cell)
    states = json.loads(checkout.launch("status", found.study.path, "--json").stdout)
    rows = {Path(row["run"]).name: row for row in states}
    assert (rows[cell]["job"], rows[cell]["attempts"]) == (job, 2)
    assert rows[cell]["state"] in {"running", "saving"}

    checkout.launch("cancel", found.study.path)
    wait_until(
        lambda: {found.last(one)["event"] for one in cells} == {"stopped"},
        timeout=60, what="both to stop",
    )  # fmt: skip
    submit(checkout, found.study.path)
    assert [found.last(one)["event"] for one in cells] == ["queued", "queued"]
    checkout.launch("cancel", found.study.path)


def test_a_study_whose_runs_all_fail_goes_on_with_the_fixed_code(
    tmp_path: Path, cluster: Cluster
) -> None:
    broken = make_checkout(cluster, tmp_path / "ditbench", logs=tmp_path / "logs")
    module = broken.root / "train" / "__main__.py"
    text = module.read_text()
    module.write_text("raise TypeError('a typo')\n")
    file = write(
        broken, "typo", axes={"seed": [1, 2, 3, 4, 5]}, throttle=1,
        set={"resources.gpu": "a40", "train.steps": 2},
    )  # fmt: skip
    found = submit(broken, file)
    cluster.wait(found.report, timeout=300)
    cells = [row.cell for row in sorted(found.study.rows(), key=lambda row: row.order)]
    assert [found.last(cell)["event"] for cell in cells] == ["failed"] * 5
    assert len(list(found.study.jobs.glob("*.out"))) == 6
    assert not list(broken.logs.glob("*.out"))

    module.write_text(text)
    answer = broken.launch("rerun", found.study.path)
    assert "5 runs, at most " in answer.stderr
    cluster.wait(found.job(cells[0]), timeout=180)
    assert [found.last(cell)["event"] for cell in cells[:1]] == ["done"]
    broken.launch("cancel", found.study.path)


@pytest.mark.long
def test_a_study_ends_when_its_verdicts_are_settled(checkout: Checkout, cluster: Cluster) -> None:
    file = write(
        checkout, "decided", axes={"train.global_batch": [8, 256]}, repeats=8, throttle=1,
        stop="decided", margin=0.1, set={"resources.gpu": "a40", "train.steps": 40},
    )  # fmt: skip
    found = submit(checkout, file)
    cluster.wait(found.report, timeout=600)
    ends = [found.last(row.cell) for row in found.study.in_grid_order()]
    skipped = [end for end in ends if end["event"] == "skipped"]
    assert {end["event"] for end in ends} == {"done", "skipped"}
    assert len(skipped) >= 4
    assert {end["reason"] for end in skipped} == {"decided"}
    assert {cluster.accounted(found.job(row.cell))["State"] for row in found.study.rows()} == {
        "COMPLETED"
    }
    assert "skipped (decided)" in (found.study.path / "report.html").read_text()
