"""Somebody's own program on a real Slurm: a study with a forced requeue, and its report."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from configs.load import read_tree
from configs.yaml12 import dump_yaml
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.test_launch import Checkout, copy_tree
from tests.slurm.test_studies import submit


@pytest.fixture
def checkout(cluster: Cluster, tmp_path: Path) -> Checkout:
    root = tmp_path / "ditbench"
    copy_tree(root)
    return Checkout(root=root, logs=tmp_path / "logs", cluster=cluster)


def own_folder(checkout: Checkout, folder: Path) -> Path:
    """Copy the example out of the checkout, as if it were somebody's; return its study."""
    mine = folder / "my 'project' $(touch hacked)"
    shutil.copytree(checkout.root / "configs" / "command", mine)
    study = read_tree(checkout.root / "configs" / "studies" / "own-script.yaml")
    # With a throttle, tasks still wait when the first is requeued.
    study |= {
        "base": "softmax.yaml",
        "set": {"params.steps": 60_000},
        "throttle": 1,
        "repeats": 1,
    }
    (mine / "study.yaml").write_text(dump_yaml(study))
    return mine / "study.yaml"


def steps(log: Path) -> list[int]:
    lines = log.read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("step ")]


def test_a_study_of_ones_own_script_is_queued_requeued_resumed_and_reported(
    checkout: Checkout, cluster: Cluster, tmp_path: Path
) -> None:
    file = own_folder(checkout, tmp_path)
    found = submit(checkout, file)
    (file.parent / "softmax.py").write_text("raise SystemExit('edited after the submission')\n")
    first = min(found.study.rows(), key=lambda row: row.order)
    cell, task = found.study.cell(first.cell), found.task(first.cell)
    log = cell / "attempts" / "001" / "output.log"
    wait_until(lambda: log.exists() and "step 400 " in log.read_text(), timeout=90)
    cluster.warn(task)
    cluster.end_requeue_hold(task, timeout=90)
    assert found.report is not None
    cluster.wait(found.report, timeout=240)
    assert [found.events(row.cell)[-1] for row in found.study.rows()] == ["done"] * 2
    events = found.events(first.cell)
    assert events == ["queued", "started", "saved", "paused", "started", "saved", "done"]
    before, resumed = steps(log), steps(cell / "attempts" / "002" / "output.log")
    assert 400 <= before[-1] < resumed[0] < 60_000
    assert resumed[-1] == 60_000
    page = (found.study.path / "report.html").read_text()
    assert "params.lr" in page
    assert "steps/s" in page
    answer = cluster.run(sys.executable, "-m", "analysis", "runs", found.study.path, "--json")
    rows = json.loads(answer.stdout)
    assert [(row["step"], row["attempts"]) for row in rows].count((60_000, 2)) == 1
    assert all(row["steps_per_s"] > 0 and 0 < row["loss"] < 1 for row in rows)
    assert not list(tmp_path.rglob("hacked"))
