"""When a run or a study would be done, asked of a real Slurm."""

from __future__ import annotations

import json
import time

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.test_launch import Checkout, copy_tree


@pytest.fixture(scope="module")
def checkout(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    folder = tmp_path_factory.mktemp("when")
    root = folder / "a 'tree' $(touch hacked)"
    copy_tree(root)
    return Checkout(root=root, logs=folder / "lo gs; #%j", cluster=cluster)


def occupy_a40_for_90_minutes(cluster: Cluster) -> None:
    for node in ("a40-1", "a40-2"):
        words = (f"-w{node}", "--exclusive", "--time=90", "--output=/dev/null")
        cluster.wait(cluster.submit(*words, script="sleep 600"), "RUNNING")


@pytest.mark.usefixtures("several_jobs")
def test_plan_asks_this_cluster_for_each_type(checkout: Checkout, cluster: Cluster) -> None:
    occupy_a40_for_90_minutes(cluster)
    config = "configs/pretrain/digits.yaml"
    found = checkout.launch("plan", config, "resources.gpu=a40,a100", "repeats=3")
    assert "the first of 2 arrays starts about " in found.stderr
    found = checkout.launch("plan", config, "--json")
    rows = json.loads(found.stdout)["placements"]
    assert [row["shape"] for row in rows] == ["a100:1x1", "a40:1x1"]
    free, busy = rows
    assert abs(free["start"] - time.time()) < 60
    assert busy["start"] - time.time() > 80 * 60
    assert f"queue it: ditbench submit {config} resources.gpu=a100" in found.stderr
