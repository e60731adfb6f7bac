"""The rendezvous of several nodes: its secrets, and what another user of a node can do to it."""

import os
import re
import stat
from pathlib import Path

import pytest

from tests.real_runs import DIGITS, processes
from tests.slurm.cluster import Cluster
from tests.slurm.pretrain_jobs import ENDLESS, TWO_BY_ONE, Jobs
from tests.stranger import attack, listening_ports


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_who_overwrites_every_key_of_the_store_runs_no_code(
    cluster: Cluster, tmp_path: Path
) -> None:
    jobs, marker = Jobs(cluster=cluster, logs=tmp_path), tmp_path / "code-of-another-user-ran"
    job = jobs.submit(DIGITS, *ENDLESS, flags=TWO_BY_ONE)
    run = jobs.at_step(job, 1)
    secrets = run.attempt(1) / "rendezvous"
    assert re.fullmatch(r"\S+ \d+ [0-9a-f]{32}\n", secrets.read_text())
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    port = int(secrets.read_text().split()[1])
    ports = listening_ports(processes(run, "--attempt"))
    (store,) = attack(marker, ports)
    assert store["port"] == port
    assert store["keys"]
    # A save follows, in which the ranks exchange plans, and an orderly end.
    jobs.at_step(job, max(record.get("step", 0) for record in run.records()) + 60)
    run.stop_file.touch()
    jobs.cluster.wait(job, timeout=120)
    assert [record["event"] for record in run.records() if "event" in record][-2:] == [
        "saved",
        "stopped",
    ]
    assert not marker.exists()
