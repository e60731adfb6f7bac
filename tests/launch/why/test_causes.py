"""`launch why` on recorded logs of ends that need GPUs, a cgroup or InfiniBand.

Ends that a Slurm without GPUs can produce are in tests/slurm/test_why.py.
"""

import pytest

from launch.why.causes import causes
from runs.folder import RunFolder
from runs.jobs import CANCELLED
from tests.launch.why.conftest import CASCADE, CUDA_OOM, ROOT_CAUSE, Why, fail, record, write_log

XID = "NVRM: Xid (PCI:0000:41:00): 79, pid=12034, name=python, GPU has fallen off the bus."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
CGROUP = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks have been "
    "OOM Killed."
)
PORT = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
    "already in use"
)


def test_a_gpu_that_ran_out_of_memory(run: RunFolder, why: Why) -> None:
    fail(run, rank=2, reason="oom", message=CUDA_OOM)
    found = why()
    assert (found["cause"], found["first_failure"]) == ("cuda oom", "rank 2 on node-1")
    assert "train.micro_batch=auto" in found["next"]


@pytest.mark.parametrize("text", [XID, ECC])
def test_a_gpu_that_broke(run: RunFolder, why: Why, text: str) -> None:
    fail(run, rank=1, reason="nccl", message=CASCADE)
    write_log(run, "output.log", CASCADE, text)
    assert why()["cause"] == "gpu fault"


def test_a_gpu_that_broke_as_its_rank_noted_it(run: RunFolder, why: Why) -> None:
    fail(run, rank=1, reason="node", message="CUDA error: unspecified launch failure")
    write_log(run, "output.log", CASCADE, "CUDA error: unspecified launch failure")
    found = why()
    assert found["cause"] == "gpu fault"
    assert "rank 1" in found["what"]
    assert "--exclude=" in found["next"]


def test_host_memory_under_cgroups(run: RunFolder, why: Why) -> None:
    fail(run, rank=0, reason="crash", message="Connection closed by peer")
    write_log(
        run, "output.log", CGROUP, ROOT_CAUSE.format(second=1, host="n1", rank=1, code=-9, signal=9)
    )
    found = why()
    assert found["cause"] == "host oom"
    assert any("oom_kill event" in line for line in found["evidence"])


def test_a_clash_of_ports(run: RunFolder, why: Why) -> None:
    fail(run, rank=0, reason="nccl", message=PORT)
    write_log(run, "output.log", PORT)
    assert why()["cause"] == "port clash"


def test_root_causes_come_before_their_consequences() -> None:
    names = list(causes())
    for root in ("cuda oom", "host oom", "disk", "gpu fault", "data", "node failure", "killed"):
        assert names.index(root) < names.index("nccl")


def test_a_cancel_of_the_launcher_is_told_from_scancel(run: RunFolder, why: Why) -> None:
    record(run, "stopped", step=3)
    (run.attempt(1) / CANCELLED).touch()
    found = why()
    assert found["cause"] == "scancel"
    assert found["what"].startswith("you, by ditbench cancel, cancelled the job")


@pytest.mark.parametrize(("step", "cause"), [(200, "end of a turn"), (130, "asked to pause")])
def test_the_end_of_a_turn_is_told_from_a_pause_within_it(
    run: RunFolder, why: Why, step: int, cause: str
) -> None:
    record(run, "paused", step=step)
    run.note(1, turn="1120-093000-1a2b:200")
    assert why()["cause"] == cause
