"""`env/interactive.sh` on a real Slurm: several runs in one allocation."""

import json
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import SCRIPTS, Cluster
from tests.slurm.test_launch import SMALLEST, events

ROOT = SCRIPTS.parents[1]
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


def runs(folder: Path, name: str) -> list[Path]:
    """Return the runs in the order of their start."""
    found = (folder / "logs").glob(f"{name}-*")
    return sorted(found, key=lambda run: (run / "config.yaml").stat().st_mtime_ns)


def test_the_session_is_an_allocation_with_the_environment_activated(session: str) -> None:
    assert f"gpu nodes: a40-[1-2], python: {sys.prefix}/bin/python\n" in session
    assert "JobName=interactive" in session
    assert "TimeLimit=00:30:00" in session


def test_two_configs_at_once_and_twice_in_a_row_all_reach_done(session: str, folder: Path) -> None:
    assert "failed" not in session
    assert len(runs(folder, "first")) == 2
    assert len(runs(folder, "second")) == 1
    for run in (folder / "logs").iterdir():
        assert events(run) == ["started", "saved", "done"]


def test_the_runs_at_once_span_both_nodes_and_all_runs_name_one_job(
    session: str, folder: Path
) -> None:
    attempts = {
        run: json.loads((run / "manifest.json").read_text())["attempts"][0]
        for run in (folder / "logs").iterdir()
    }
    assert len({attempt["slurm"]["job"] for attempt in attempts.values()}) == 1
    for run in (runs(folder, "first")[0], runs(folder, "second")[0]):
        assert {rank["node"] for rank in attempts[run]["placement"]} == {"a40-1", "a40-2"}


def test_the_two_concurrent_runs_overlapped(session: str, folder: Path) -> None:
    def lifetime(run: Path) -> tuple[float, float]:
        """Return when the ranks started and last wrote; single steps are too short to overlap."""
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        step = next(record for record in records if "setup_s" in record)
        return step["time"] - step["setup_s"] - step["train_s"], records[-1]["time"]

    first, second = lifetime(runs(folder, "first")[0]), lifetime(runs(folder, "second")[0])
    assert first[0] < second[1]
    assert second[0] < first[1]
