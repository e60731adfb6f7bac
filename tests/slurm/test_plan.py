"""`plan` checks the flags of `submit` on a real Slurm."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_runs import DIGITS
from tests.slurm.cluster import Cluster

Plan = Callable[..., dict[str, str]]


@pytest.fixture
def plan(cluster: Cluster, tmp_path: Path) -> Plan:
    """Return a function that runs plan and returns its lines by topic, level first."""
    environment = {"SITE": "local", "LOGS": str(tmp_path), "VENV": sys.prefix}

    def check(*words: str) -> dict[str, str]:
        command = (sys.executable, "-m", "launch", "plan", str(DIGITS), *words)
        output = cluster.run(*command, env=environment, check=False, timeout=120).stdout
        lines = [
            re.fullmatch(r"(pass|warn|fail) +(\w+(?: \w+)?)  +(.*)", line)
            for line in output.splitlines()
        ]
        return {line[2]: f"{line[1]}: {line[3]}" for line in lines if line}

    return check


def test_an_available_gpu_and_time_pass(plan: Plan) -> None:
    found = plan("resources.gpu=a100", "resources.gpus_per_node=2")
    assert found["cluster"] == "pass: good"


def test_a_gpu_and_a_time_that_the_cluster_does_not_have_fail(plan: Plan) -> None:
    found = plan("resources.gpu=h100", "resources.hours=72")
    assert found["cluster"].startswith("fail: partition gpu allows 48:00:00, not 72:00:00")
    found = plan("resources.gpu=h100")
    assert "node configuration is not available" in found["cluster"]
    assert "this cluster has a100 (2 nodes of 2), a40 (2 nodes of 2); change" in found["cluster"]


def test_lost_nodes_are_a_warning(plan: Plan, cluster: Cluster) -> None:
    for node in ("a40-1", "a40-2"):
        cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    found = plan("resources.gpu=a40")
    assert found["cluster"].startswith("warn: some nodes are down or drained")


def test_nothing_is_queued(plan: Plan, cluster: Cluster) -> None:
    before = cluster.run("squeue", "-h", "-t", "all", "-o", "%i").stdout.split()
    plan()
    assert set(cluster.run("squeue", "-h", "-t", "all", "-o", "%i").stdout.split()) <= set(before)
