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
def test_when_of_a_study_asks_for_each_array_on_each_type(
    checkout: Checkout, cluster: Cluster
) -> None:
    occupy_a40_for_90_minutes(cluster)
    config = "configs/pretrain/digits.yaml"
    words = ("train.global_batch=32,64", "resources.gpus_per_node=1,2", "repeats=3", "throttle=2")
    found = checkout.launch("plan", config, *words, "--json")
    rows = json.loads(found.stdout)["placements"]
    assert [row["shape"] for row in rows[::3]] == ["study on a100", "study on a40"]
    assert [row["at_once"] for row in rows if "at_once" in row] == [2, 2, 2, 2]
    for total, *arrays in (rows[:3], rows[3:]):
        assert (total["runs"], [row["runs"] for row in arrays]) == (12, [6, 6])
        assert total["finish"] == max(row["finish"] for row in arrays)
    assert abs(rows[0]["start"] - time.time()) < 60
    assert rows[3]["start"] - time.time() > 80 * 60
    assert (
        f"queue it: ditbench submit {config} {' '.join(words)} resources.gpu=a100" in found.stderr
    )


@pytest.mark.usefixtures("several_jobs")
def test_when_asks_this_cluster(checkout: Checkout, cluster: Cluster) -> None:
    occupy_a40_for_90_minutes(cluster)
    config = "configs/pretrain/digits.yaml"
    steps = ("train.steps=100000", "checkpoint.every=100000")
    found = checkout.launch("plan", config, *steps, "--json")
    rows = json.loads(found.stdout)["placements"]
    assert {row["shape"].partition(":")[0] for row in rows[:3]} == {"a100"}
    assert {row["shape"] for row in rows} >= {"a40:1x1", "a40:1x2", "a40:2x2", "a100:2x2"}
    assert abs(rows[0]["start"] - time.time()) < 60
    assert rows[-1]["start"] - time.time() > 80 * 60
    assert "resources.gpu=a100 resources.nodes=" in found.stderr
