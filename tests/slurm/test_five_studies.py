"""One command takes each small study through Slurm, from its plan to its report."""

import re
from pathlib import Path

import pytest

from runs.folder import RunFolder
from runs.study_folder import StudyFolder
from tests.real_runs import events
from tests.slurm.checkout import Checkout, make_checkout
from tests.slurm.cluster import Cluster

SMALL = ("a-small", "b-small", "c-small", "d-small", "e-small")


@pytest.fixture
def checkout(cluster: Cluster, tmp_path: Path) -> Checkout:
    return make_checkout(cluster, tmp_path / "ditbench", logs=tmp_path / "logs")


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", SMALL)
def test_a_small_study_ends_with_a_report_of_every_grid(
    name: str, checkout: Checkout, cluster: Cluster
) -> None:
    done = cluster.run(
        *("bash", "jobs/study.sh", name),
        cwd=checkout.root, env=checkout.environment | {"OMP_NUM_THREADS": "1"}, timeout=3000,
    )  # fmt: skip
    studies = [StudyFolder(Path(path)) for path in re.findall(r"^study: (.+)$", done.stdout, re.M)]
    grids = {study.path.name.rpartition("-small-")[0] for study in studies}
    assert grids == {path.name.removesuffix("-small.yaml") for path in grids_of(checkout, name)}
    for study in studies:
        for row in study.rows():
            run = RunFolder(study.cell(row.cell))
            assert events(run)[-1] == "done", run
            *_, attempt = run.entries()
            assert cluster.accounted(attempt["slurm"]["job"])["State"] == "COMPLETED"
        assert (study.path / "cells.txt").stat().st_size > 0
        assert all(row.cell in (study.path / "report.html").read_text() for row in study.rows())
    assert cluster.run("squeue", "-h").stdout == ""


def grids_of(checkout: Checkout, name: str) -> list[Path]:
    """Return the files of a small study's grids."""
    letter = name.partition("-")[0]
    return list((checkout.root / "configs" / "studies").glob(f"{letter}-*-small.yaml"))
