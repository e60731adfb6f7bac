"""`launch why` on recorded logs of ends that need GPUs, a cgroup or InfiniBand.

CUDA OOM, host OOM under cgroups, ECC and Xid, NCCL's watchdog, NCCL's cascade, a clash of ports.
Ends that a Slurm without GPUs can produce are in tests/slurm/test_why.py.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.load import load, to_tree
from configs.run.folder import RunFolder, make_run
from configs.run.records import RecordWriter
from launch.why.causes import CAUSES
from tests.launch.conftest import DIGITS

Launch = Callable[..., tuple[int, str, str]]

CUDA_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 44.34 GiB of which 1.11 GiB is free."
)
CASCADE = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, remote process "
    "exited or there was a network error\nncclRemoteError: A call failed possibly due to a network "
    "error or a remote process exiting prematurely."
)
WATCHDOG = (
    "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1511, OpType=ALLREDUCE, NumelIn=33554432, Timeout(ms)=600000) ran for 600029 "
    "milliseconds before timing out."
)
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
ROOT_CAUSE = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_10:00:0{second}
  host      : {host}
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 19871)
  traceback : Signal {signal} received by PID 19871
"""


@pytest.fixture(autouse=True)
def no_slurm(command: Callable[[str, str], Path]) -> None:
    """A Slurm that has forgotten every job."""
    for name in ("squeue", "sacct", "scontrol"):
        command(name, "exit 1")


@pytest.fixture
def run(site: Path) -> RunFolder:
    """Return a run with one started attempt."""
    made = make_run("digits", to_tree(load(DIGITS, [])), identity="71")
    (made.attempt(1) / "ranks").mkdir(parents=True)
    made.note(1, time=1000.0, slurm={"job": "71"})
    record(made, "started", step=0)
    return made


def record(run: RunFolder, event: str, **fields: Any) -> None:
    writer = RecordWriter(run.path, attempt=1)
    writer.event(event, **fields)
    writer.close()


def write_log(run: RunFolder, name: str, *lines: str) -> None:
    with (run.attempt(1) / name).open("a") as file:
        file.write("\n".join(lines) + "\n")


def fail(run: RunFolder, *, rank: int, reason: str, message: str) -> None:
    """Write the error note of the first failing rank and close the attempt."""
    note = {"rank": rank, "node": f"node-{rank // 2}", "reason": reason, "message": message}
    (run.attempt(1) / "error.json").write_text(json.dumps(note))
    record(run, "failed", reason=reason, message=message, rank=rank)


@pytest.fixture
def why(launch: Launch, run: RunFolder) -> Callable[[], dict[str, Any]]:
    def ask() -> dict[str, Any]:
        return json.loads(launch("why", run.path, "--json")[1])[-1]

    return ask


Why = Callable[[], dict[str, Any]]


def test_a_gpu_that_ran_out_of_memory(run: RunFolder, why: Why) -> None:
    fail(run, rank=2, reason="oom", message=CUDA_OOM)
    found = why()
    assert (found["cause"], found["first_failure"]) == ("cuda oom", "rank 2 on node-1")
    assert "train.micro_batch=auto" in found["next"]


def test_a_gpu_out_of_memory_is_the_root_of_what_the_other_ranks_say(
    run: RunFolder, why: Why
) -> None:
    fail(run, rank=0, reason="nccl", message=CASCADE)
    write_log(run, "ranks/rank-00000.log", CASCADE)
    write_log(run, "ranks/rank-00003.log", "step 7", CUDA_OOM)
    found = why()
    assert (found["cause"], found["first_failure"]) == ("cuda oom", "rank 3")
    log = run.attempt(1) / "ranks" / "rank-00003.log"
    assert f"{log}:2: {CUDA_OOM}" in found["evidence"]


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


def test_the_rank_that_others_waited_for_is_named(run: RunFolder, why: Why) -> None:
    fail(run, rank=0, reason="nccl", message=WATCHDOG)
    # NCCL aborts the ranks that waited.
    aborted = ROOT_CAUSE.format(second=1, host="n1", rank=1, code=-6, signal="6 (SIGABRT)")
    write_log(run, "output.log", WATCHDOG, aborted)
    for rank, step in ((0, 40), (1, 40), (2, 39), (3, 40)):
        line = f'{{"step": {step}, "time": 1.0}}'
        write_log(run, f"ranks/arrivals-{rank:05d}.jsonl", line, "torn {")
    found = why()
    assert found["cause"] == "hang"
    assert found["first_failure"] == "rank 2, last seen at step 39; others reached 40"


def test_the_rank_that_the_watchdog_found_is_named(run: RunFolder, why: Why) -> None:
    fail(run, rank=3, reason="hang", message="rank 3 on node-1 stands still at step 9")
    write_log(
        run,
        "output.log",
        ROOT_CAUSE.format(second=1, host="n1", rank=0, code=-9, signal="9 (SIGKILL)"),
    )
    found = why()
    assert (found["cause"], found["first_failure"]) == ("hang", "rank 3 on node-1")


def test_a_rank_that_died_first_is_distinguished_from_the_cascade(run: RunFolder, why: Why) -> None:
    fail(run, rank=0, reason="nccl", message=CASCADE)
    write_log(
        run,
        "output.log",
        ROOT_CAUSE.format(second=3, host="node-0", rank=0, code=1, signal="6 (SIGABRT)"),
        ROOT_CAUSE.format(second=4, host="node-2", rank=5, code=-7, signal="7 (SIGBUS)"),
        ROOT_CAUSE.format(second=2, host="node-1", rank=3, code=-11, signal="11 (SIGSEGV)"),
        ROOT_CAUSE.format(second=1, host="node-3", rank=7, code=-15, signal="15 (SIGTERM)"),
    )
    found = why()
    assert (found["cause"], found["first_failure"]) == ("killed", "rank 3 on node-1, by signal 11")


def test_a_cascade_without_a_root_names_who_failed_first(run: RunFolder, why: Why) -> None:
    fail(run, rank=5, reason="nccl", message=CASCADE)
    write_log(run, "ranks/rank-00005.log", CASCADE)
    found = why()
    assert (found["cause"], found["first_failure"]) == ("nccl", "rank 5 on node-2")


def test_a_clash_of_ports(run: RunFolder, why: Why) -> None:
    fail(run, rank=0, reason="nccl", message=PORT)
    write_log(run, "output.log", PORT)
    assert why()["cause"] == "port clash"


def test_an_exception_is_a_crash(run: RunFolder, why: Why) -> None:
    fail(run, rank=1, reason="crash", message="KeyError: 'weights'")
    found = why()
    assert (found["cause"], found["first_failure"]) == ("crash", "rank 1 on node-0")
    assert "KeyError" in found["evidence"][0]


def test_attempts_without_progress_are_listed(run: RunFolder, launch: Launch) -> None:
    record(run, "paused", step=1)
    run.attempt(2).mkdir()
    writer = RecordWriter(run.path, attempt=2)
    writer.event("failed", reason="timeout", message="3 attempts in a row saved nothing new")
    writer.close()
    code, out, _ = launch("why", run.path)
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first == "digits-71, attempt 1: asked to pause"
    assert second == "digits-71, attempt 2: no progress"


def test_a_run_without_an_end_is_unknown_without_slurm(run: RunFolder, launch: Launch) -> None:
    code, out, _ = launch("why", run.path)
    assert code == 0
    assert "unknown: no end is recorded, and Slurm knows no job of the run" in out


def test_a_queued_run_whose_job_could_not_be_started(
    site: Path, launch: Launch, command: Callable[[str, str], Path]
) -> None:
    made = make_run("digits", to_tree(load(DIGITS, [])), identity="x")
    record(made, "queued")
    (made.path / "jobs").mkdir()
    (made.path / "jobs" / "72.sbatch").touch()
    command("scontrol", "echo 'JobId=72 JobState=FAILED Reason=JobLaunchFailure ExitCode=0:53'")
    (found,) = json.loads(launch("why", made.path, "--json")[1])
    assert found["cause"] == "launch failure"
    assert found["evidence"] == ["scontrol: job 72: FAILED, exit code 0:53, JobLaunchFailure"]
    command("scontrol", "echo 'JobId=72 JobState=PENDING Reason=Priority ExitCode=0:0'")
    (found,) = json.loads(launch("why", made.path, "--json")[1])
    assert found["what"] == "waits (Priority)"


def test_terminal_escapes_in_logs_are_not_printed(run: RunFolder, launch: Launch) -> None:
    fail(run, rank=0, reason="crash", message="\x1b[2J evil")
    write_log(run, "output.log", "Traceback \x1b[31mRuntimeError: \x07bell")
    assert "\x1b" not in launch("why", run.path)[1]


def test_a_folder_that_is_not_a_run_is_refused(launch: Launch, tmp_path: Path) -> None:
    code, _, err = launch("why", tmp_path)
    assert code == 2
    assert "not a run's folder or a job id" in err


def test_root_causes_come_before_their_consequences() -> None:
    names = [cause.name for cause in CAUSES]
    for root in ("cuda oom", "host oom", "disk", "gpu fault", "data", "node failure", "killed"):
        assert names.index(root) < names.index("nccl")
    assert len(names) == len(set(names))
