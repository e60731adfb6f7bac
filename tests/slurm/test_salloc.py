"""`env/interactive.sh` on a real Slurm: several runs in one allocation."""

import sys
from pathlib import Path

import pytest

from runs.folder import ROOT, RunFolder, find_runs
from tests.real_runs import events
from tests.slurm.cluster import Cluster
from tests.slurm.test_launch import SMALLEST

CONFIG = ROOT / "configs" / "pretrain" / "digits.yaml"

# Two configs at once on both nodes, then one of them again, on one node to save time.
SESSION = f"""
echo "gpu nodes: $SLURM_JOB_NODELIST, python: $(command -v python)"
body() {{ bash "$PYTHONPATH/jobs/pretrain.sbatch" "$@" {" ".join(SMALLEST)}; }}
body first.yaml >first.log 2>&1 & first=$!
body second.yaml >second.log 2>&1 & second=$!
wait $first || echo failed
wait $second || echo failed
SLURM_NNODES=1 body first.yaml >third.log 2>&1 || echo failed
scontrol show job "$SLURM_JOB_ID" -o
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("salloc")
    for name in ("first", "second"):
        (folder / f"{name}.yaml").write_bytes(CONFIG.read_bytes())
    return folder


@pytest.fixture(scope="module")
def session(cluster: Cluster, folder: Path) -> str:
    """Return the output of a session on two nodes with one GPU each."""
    answer = cluster.run(
        *(ROOT / "env" / "interactive.sh", "a40", "1", "--", "--nodes=2", "--time=00:30:00"),
        "--cpus-per-task=2",
        stdin=SESSION,
        cwd=folder,
        env={"VENV": sys.prefix, "LOGS": str(folder / "logs"), "SITE": "local"},
        timeout=300,
    )
    return answer.stdout


@pytest.fixture(scope="module")
def runs(session: str, folder: Path) -> list[RunFolder]:
    """The two runs at once, and the one that followed."""
    found = sorted(find_runs(folder / "logs"), key=lambda run: run.config_file.stat().st_mtime_ns)
    (second,) = (run for run in found if run.name.startswith("second-"))
    first, again = (run for run in found if run.name.startswith("first-"))
    return [first, second, again]


def test_the_session_is_an_allocation_with_the_environment_activated(session: str) -> None:
    assert f"gpu nodes: a40-[1-2], python: {sys.prefix}/bin/python\n" in session
    assert "JobName=interactive" in session
    assert "TimeLimit=00:30:00" in session


def test_two_configs_at_once_and_twice_in_a_row_all_reach_done(
    session: str, runs: list[RunFolder]
) -> None:
    assert "failed" not in session
    for run in runs:
        assert events(run) == ["started", "saved", "done"]


def test_the_runs_at_once_span_both_nodes_and_all_runs_name_one_job(runs: list[RunFolder]) -> None:
    attempts = [attempt for run in runs for attempt in run.entries()]
    assert len({attempt["slurm"]["job"] for attempt in attempts}) == 1
    for attempt in attempts[:2]:
        assert {rank["node"] for rank in attempt["placement"]} == {"a40-1", "a40-2"}


def lifetime(run: RunFolder) -> tuple[float, float]:
    """Return when the ranks started and last wrote; single steps are too short to overlap."""
    records = [*run.records()]
    step = next(record for record in records if "setup_s" in record)
    return step["time"] - step["setup_s"] - step["train_s"], records[-1]["time"]


def test_the_two_concurrent_runs_overlapped(runs: list[RunFolder]) -> None:
    first, second, _ = map(lifetime, runs)
    assert first[0] < second[1]
    assert second[0] < first[1]
