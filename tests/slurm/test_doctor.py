"""`launch doctor` measures a cluster and writes a site file that works."""

import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.cluster import SCRIPTS, Cluster, wait_until
from tests.slurm.test_launch import copy_tree

ROOT = SCRIPTS.parents[1]
HOST = subprocess.run(["hostname", "-f"], capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True, kw_only=True)
class Clinic:
    """A checkout with writable site files, and a cluster."""

    root: Path
    cluster: Cluster

    @property
    def environment(self) -> dict[str, str]:
        logs = str(self.root / "lo gs")
        return {"SITE": "local", "LOGS": logs, "VENV": sys.prefix, "PYTHONPATH": str(self.root)}

    def launch(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(
            *(sys.executable, "-m", "launch", *words),
            cwd=self.root, env=self.environment, check=check, timeout=300,
        )  # fmt: skip

    def measure(self, *words: str) -> dict[str, str]:
        """Return the values in the table by property."""
        table = self.launch("doctor", *words).stdout.splitlines()
        value, meaning = table[0].index("value"), table[0].index("meaning")
        return {line[:value].strip(): line[value:meaning].strip() for line in table[1:]}


@pytest.fixture
def clinic(cluster: Cluster, tmp_path: Path) -> Clinic:
    copy_tree(root := tmp_path / "check out")
    return Clinic(root=root, cluster=cluster)


def test_the_doctor_measures_this_cluster_and_leaves_no_job(clinic: Clinic) -> None:
    found = clinic.measure()
    assert found["requeue"] == "allowed"
    assert found["driver and compiler"] == "good"
    version = clinic.cluster.run("sinfo", "--version").stdout.split()[1]
    assert (found["Slurm"], found[f"Slurm {version}"]) == (version, "note")
    assert found["GPU a40, 2 per node"].startswith("--gpus-per-node=TYPE:N")
    assert clinic.cluster.run("squeue", "-h").stdout == ""
    assert list((clinic.root / "lo gs").iterdir()) == []


def test_the_site_file_replaces_one_by_force_only_is_valid_and_passes_plan(
    clinic: Clinic,
) -> None:
    file = clinic.root / "env" / "sites" / "mine.sh"
    file.write_text("# by hand\n")
    measure = ("doctor", "--partition", "preempt", "--site", "mine")
    kept = clinic.launch(*measure)
    assert "exists and is unchanged; --force overwrites it" in kept.stderr
    assert file.read_text() == "# by hand\n"
    clinic.launch(*measure, "--force")
    text = file.read_text()
    assert "JOB_FLAGS=(--partition=preempt)" in text
    assert f"\n# host: {HOST}\n" in text
    assert not [line for line in text.splitlines() if len(line) > 130]
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", file], check=False).returncode == 0
    words = ("configs/pretrain/digits.yaml", "resources.gpu=a100")
    checked = clinic.launch("plan", *words, "--site", "mine", check=False).stdout
    assert re.search(r"^pass +cluster +good$", checked, re.MULTILINE)
    script = clinic.launch("plan", *words, "--site", "mine", "--script").stdout
    for flag in ("--partition=preempt", "--nodes=1", "--gpus-per-node=a100:1"):
        assert f"#SBATCH {flag}\n" in script


def test_ctrl_c_cancels_the_job(clinic: Clinic) -> None:
    # One job runs at a time, so the doctor's waits behind this one.
    other = clinic.cluster.submit("--time=5", "--output=/dev/null", script="sleep 200")
    clinic.cluster.wait(other, "RUNNING")
    process = subprocess.Popen(
        # A background job ignores INT, and so would its children.
        ["env", "--default-signal=INT", sys.executable, "-m", "launch", "doctor"],
        cwd=clinic.root,
        env=clinic.cluster.environment | clinic.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    submitted = next(line for line in process.stderr if line.startswith("job "))
    assert clinic.cluster.state(submitted.split()[1]) == "PENDING"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    clinic.cluster.run("scancel", other)
    wait_until(lambda: clinic.cluster.run("squeue", "-h").stdout == "", what="an empty queue")
    assert list((clinic.root / "lo gs").iterdir()) == []
