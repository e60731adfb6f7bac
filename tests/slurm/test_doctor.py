"""`launch doctor` measures a cluster and writes a site file that works."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.checkout import Checkout, make_checkout
from tests.slurm.cluster import Cluster, wait_until

HOST = subprocess.run(["hostname", "-f"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(cluster: Cluster, tmp_path: Path) -> Checkout:
    return make_checkout(cluster, tmp_path / "check out", logs=tmp_path / "lo gs")


def test_the_doctor_measures_this_cluster_and_leaves_no_job(checkout: Checkout) -> None:
    table = checkout.launch("doctor").stdout.splitlines()
    value, meaning = table[0].index("value"), table[0].index("meaning")
    found = {line[:value].strip(): line[value:meaning].strip() for line in table[1:]}
    assert found["requeue"] == "allowed"
    assert found["driver and compiler"] == "good"
    version = checkout.cluster.run("sinfo", "--version").stdout.split()[1]
    assert (found["Slurm"], found[f"Slurm {version}"]) == (version, "note")
    assert found["GPU a40, 2 per node"].startswith("--gpus-per-node=TYPE:N")
    assert checkout.cluster.run("squeue", "-h").stdout == ""
    assert list(checkout.logs.iterdir()) == []


def test_the_site_file_replaces_one_by_force_only_is_valid_and_passes_plan(
    checkout: Checkout,
) -> None:
    file = checkout.root / "env" / "sites" / "mine.sh"
    file.write_text("# by hand\n")
    measure = ("doctor", "--partition", "preempt", "--site", "mine")
    kept = checkout.launch(*measure)
    assert "exists and is unchanged; --force overwrites it" in kept.stderr
    assert file.read_text() == "# by hand\n"
    checkout.launch(*measure, "--force")
    text = file.read_text()
    assert "JOB_FLAGS=(--partition=preempt)" in text
    assert f"\n# host: {HOST}\n" in text
    assert not [line for line in text.splitlines() if len(line) > 130]
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", file], check=False).returncode == 0
    words = ("configs/pretrain/digits.yaml", "resources.gpu=a100")
    checked = checkout.launch("plan", *words, "--site", "mine", check=False).stdout
    assert re.search(r"^pass +cluster +good$", checked, re.MULTILINE)
    script = checkout.launch("plan", *words, "--site", "mine", "--script").stdout
    for flag in ("--partition=preempt", "--nodes=1", "--gpus-per-node=a100:1"):
        assert f"#SBATCH {flag}\n" in script


def test_ctrl_c_cancels_the_job(checkout: Checkout) -> None:
    # One job runs at a time, so the doctor's waits behind this one.
    other = checkout.cluster.submit("--time=5", "--output=/dev/null", script="sleep 200")
    checkout.cluster.wait(other, "RUNNING")
    process = subprocess.Popen(
        # A background job ignores INT, and so would its children.
        ["env", "--default-signal=INT", sys.executable, "-m", "launch", "doctor"],
        cwd=checkout.root,
        env=checkout.cluster.environment | checkout.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    submitted = next(line for line in process.stderr if line.startswith("job "))
    assert checkout.cluster.state(submitted.split()[1]) == "PENDING"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    checkout.cluster.run("scancel", other)
    wait_until(lambda: checkout.cluster.run("squeue", "-h").stdout == "", what="an empty queue")
    assert list(checkout.logs.iterdir()) == []
