"""`make study` of several grids goes on without its terminal, and one Ctrl-C only ends the wait."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from configs.yaml12 import dump_yaml
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.test_launch import Checkout, copy_tree, events
from tests.slurm.test_studies import TINY

RECIPE = """\
study z-one-small "$@"
ask echo after the first: "$(basename "$FOLDER")"
study z-two-small "data.held_out=0.5"
ask echo after the second
"""


@pytest.fixture
def checkout(cluster: Cluster, tmp_path: Path) -> Checkout:
    """A checkout with a recipe of two grids, each of one run."""
    root = tmp_path / "ditbench"
    copy_tree(root)
    (root / "jobs" / "studies" / "z.sh").write_text(RECIPE)
    keys = TINY | {"resources.gpu": "a40", "train.steps": 2}
    tree = {"kind": "study", "base": "../pretrain/digits.yaml", "set": keys, "axes": {"seed": [1]}}
    for name in ("one", "two"):
        (root / "configs" / "studies" / f"z-{name}-small.yaml").write_text(dump_yaml(tree))
    return Checkout(root=root, logs=tmp_path / "lo gs", cluster=cluster)


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(signal.SIGINT, id="interrupt"),
        pytest.param(signal.SIGHUP, id="hangup", marks=pytest.mark.long),
    ],
)
def test_the_next_grid_comes_though_the_wait_was_ended(
    ending: signal.Signals, checkout: Checkout, cluster: Cluster
) -> None:
    # No job starts before the wait was ended.
    cluster.allow_jobs(0)
    log = checkout.root / "out.txt"
    with log.open("w") as output:
        driver = subprocess.Popen(
            ["bash", "jobs/study.sh", "z-small"], cwd=checkout.root, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True, stdin=subprocess.DEVNULL,
            env=cluster.environment | checkout.environment | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    wait_until(lambda: "== wait" in log.read_text(), timeout=300, what="the wait")
    (first,) = checkout.logs.glob("z-one-small-*")
    os.killpg(driver.pid, ending)
    code = driver.wait(timeout=120)
    cluster.allow_jobs(1)
    if ending == signal.SIGINT:
        assert code == 130
        line = log.read_text().splitlines()[-1]
        folder = str(first).replace(" ", "\\ ")
        assert line == (
            f"the study goes on in Slurm; look: ditbench status {folder}; take up again: "
            f"make study NAME=z-small; end: ditbench cancel {folder}"
        )

        # Taken up again, with its output in a pipe, it follows the jobs to their end.
        again = cluster.run(
            *("bash", "jobs/study.sh", "z-small"),
            cwd=checkout.root, env=checkout.environment | {"OMP_NUM_THREADS": "1"}, timeout=300,
        )  # fmt: skip
        assert "after the second" in again.stdout

    ends = first / "jobs" / "next.status"
    wait_until(ends.exists, timeout=300, what="the end of the recipe")
    (second,) = checkout.logs.glob("z-two-small-*")
    assert [events(study / "cells" / "s1")[-1] for study in (first, second)] == ["done"] * 2
    said = (first / "jobs" / "next.out").read_text()
    assert said.count(f"after the first: {first.name}") == 2  # the command, and its output
    assert said.count(f"report: {second}/report.html") == 1
    assert "after the second" in said
    assert ends.read_text() == "0\n"
    wait_until(lambda: not cluster.run("squeue", "-h").stdout, what="the queue to be empty")
