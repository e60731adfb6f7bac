"""`launch why` on recorded logs of ends that need GPUs, a cgroup or InfiniBand.

CUDA OOM, host OOM under cgroups, ECC and Xid, NCCL's watchdog, NCCL's cascade, a clash of ports.
Ends that a Slurm without GPUs can produce are in tests/slurm/test_why.py.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.load import load, to_tree
from configs.run.folder import ROOT, RunFolder, make_run
from configs.run.jobs import CANCELLED
from configs.run.records import RecordWriter
from configs.run.study_folder import StudyFolder, StudyRow
from launch.why.causes import causes
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
    assert found["evidence"] == [f"attempts/001/ranks/rank-00003.log:2: {CUDA_OOM}"]


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
    assert found["evidence"] == ["attempts/001/error.json: rank 1: KeyError: 'weights'"]


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
    assert found["what"] == "waits: jobs with a higher priority go first"
    assert found["next"].startswith("nothing; python -m launch status ")


def test_terminal_escapes_in_logs_are_not_printed(run: RunFolder, launch: Launch) -> None:
    fail(run, rank=0, reason="crash", message="\x1b[2J evil")
    write_log(run, "output.log", "Traceback \x1b[31mRuntimeError: \x07bell")
    assert "\x1b" not in launch("why", run.path)[1]


def test_a_folder_that_is_not_a_run_is_refused(launch: Launch, tmp_path: Path) -> None:
    code, _, err = launch("why", tmp_path)
    assert code == 2
    assert "nor a job id" in err


def test_root_causes_come_before_their_consequences() -> None:
    names = list(causes())
    for root in ("cuda oom", "host oom", "disk", "gpu fault", "data", "node failure", "killed"):
        assert names.index(root) < names.index("nccl")


SYNTAX_ERROR = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/logs/.code/1a2b/train/__main__.py", line 9, in <module>
[rank0]:     import train.loop
[rank0]:   File "/home/me/logs/.code/1a2b/train/loop.py", line 1
[rank0]:     def f(:
[rank0]:           ^
[rank0]: SyntaxError: invalid syntax
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/distributed/run.py", line 901, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
train FAILED
srun: error: a40-1: task 0: Exited with exit code 1"""


def test_an_error_before_training_is_found_in_the_output(run: RunFolder, launch: Launch) -> None:
    record(run, "failed", reason="crash", message="the ranks left with status 1 and no message")
    write_log(run, "output.log", SYNTAX_ERROR)
    out = launch("why", run.path)[1]
    lines = [line.strip() for line in out.splitlines()]
    assert lines[2:4] == ["evidence:", "train/loop.py:1: SyntaxError: invalid syntax"]
    assert "ChildFailedError" not in out
    assert "error.json" not in out
    assert f"{run.attempt(1)}/output.log" in lines[-1]


def test_an_exception_in_training_shows_its_type_file_and_line(run: RunFolder, why: Why) -> None:
    message = "'Course' object has no attribute 'config'"
    fail(run, rank=0, reason="crash", message=message)
    note = run.attempt(1) / "error.json"
    frames = f'  File "{ROOT}/train/a.py", line 7, in f\n  File "/v/site-packages/t.py", line 8\n'
    noted = {"traceback": f"Traceback\n{frames}    y\nAttributeError: {message}\n"}
    note.write_text(json.dumps(json.loads(note.read_text()) | noted))
    write_log(run, "output.log", f"AttributeError: {message}")
    assert why()["evidence"] == [f"train/a.py:7: AttributeError: {message}"]


def test_a_sentence_stands_once_in_the_evidence(run: RunFolder, why: Why) -> None:
    fail(run, rank=2, reason="oom", message=CUDA_OOM.partition(": ")[2])
    for name in ("ranks/rank-00002.log", "output.log"):
        write_log(run, name, f"[rank2]: {CUDA_OOM}")
    (line,) = why()["evidence"]
    assert line.startswith("attempts/001/error.json: rank 2: CUDA out of memory")


QUEUED_AGAIN = (
    "JobId=71 JobName=pretrain JobState=PENDING Reason=BeginTime ExitCode=0:0 "
    "StartTime=2030-01-01T20:12:20 Partition=gpu"
)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("00:10:00", "the job's time limit was near; it saved at step 271, and is queued again"),
        ("1-00:00:00", "a user or Slurm sent the signal to save and pause"),
    ],
)
def test_a_requeued_run_starts_by_itself(
    run: RunFolder, why: Why, command: Callable[[str, str], Path], limit: str, said: str
) -> None:
    record(run, "paused", step=271)
    started = time.strftime("%FT%T", time.localtime(time.time() - 500))
    run.note(1, time=time.time() - 490)
    row = f"REQUEUED|0:0|{started}|Unknown|{limit}|None|gpu|a40-1"
    waits = f"PENDING|0:0|Unknown|Unknown|{limit}|None|gpu|None assigned"
    command("sacct", f"[[ $* == *-D* ]] && echo '{row}'; echo '{waits}'")
    command("scontrol", f"[[ $2 != job ]] || echo '{QUEUED_AGAIN}'")
    found = why()
    assert said in found["what"]
    assert "(job 71, may begin 2030-01-01 20:12)" in found["what"]
    assert found["next"] == f"nothing; python -m launch status {run.path}"
    assert "metrics.jsonl:2: paused at step 271" in found["evidence"]


def foreign(command: Callable[[str, str], Path], folder: Path, state: str, code: str) -> None:
    """Let Slurm know a job of a script of somebody's own in `folder`."""
    fields = f"{state}|{code}|2026-03-01T10:00:00|2026-03-01T11:00:00|01:00:00|None|gpu|n1"
    command("sacct", f"[[ $* == *WorkDir* ]] && echo '{folder}|train' || echo '{fields}'")


OWN_TRACEBACK = 'Traceback\n  File "my.py", line 3, in <module>\n    import x\nImportError: no x'


@pytest.mark.parametrize(
    ("state", "code", "log", "cause", "evidence", "advice"),
    [
        ("COMPLETED", "0:0", "step 9\nall done", "completed", "slurm-90.out:2: all done", "noth"),
        ("COMPLETED", "0:0", f"{OWN_TRACEBACK}\nbye", "exception, but exit code 0",
         "my.py:3: ImportError: no x", "set -e"),
        ("FAILED", "1:0", OWN_TRACEBACK, "crash", "my.py:3: ImportError: no x", "slurm-90.out"),
        ("FAILED", "0:9", "step 10 loss nan", "killed", "exit code 0:9", "dmesg"),
        ("FAILED", "137:0", "Killed", "killed", "exit code 137:0", "dmesg"),
        ("FAILED", "1:0", CUDA_OOM, "cuda oom", "CUDA out of memory", "smaller batch"),
        ("TIMEOUT", "0:0", "step 9", "time limit", "TIMEOUT", "sbatch --time"),
        ("CANCELLED by 0", "0:0", "step 9", "scancel", "CANCELLED", "submit it again"),
        ("FAILED", "2:0", "usage: my.py", "crash", "usage: my.py", "slurm-90.out"),
        ("RUNNING", "0:0", "Connection refused", "has not ended", "RUNNING", "slurm-90.out"),
    ],
)  # fmt: skip
def test_a_job_of_another_program_gets_no_advice_of_ours(
    site: Path, launch: Launch, command: Callable[[str, str], Path], tmp_path: Path,
    state: str, code: str, log: str, cause: str, evidence: str, advice: str,
) -> None:  # fmt: skip
    (tmp_path / "slurm-90.out").write_text(log + "\n")
    foreign(command, tmp_path, state, code)
    out = launch("why", "90")[1]
    assert out.startswith(f"job 90: {cause}\n")
    assert evidence in out
    assert advice in out.splitlines()[-1]
    for word in ("RUN ", "launch submit", "error.json", "train.", "JOB", "NNN"):
        assert word not in out


def test_a_job_whose_run_was_removed(
    site: Path, launch: Launch, command: Callable[[str, str], Path]
) -> None:
    site.mkdir()
    (site / "pretrain-91.out").write_text(f"run {site}/digits-91, attempt 1\nTraceback\n")
    foreign(command, site, "FAILED", "2:0")
    out = launch("why", "91")[1]
    assert "the folder of the run is gone" in out
    assert "submit its config again" in out


def test_a_job_of_ours_without_a_run_names_its_config(
    site: Path, launch: Launch, command: Callable[[str, str], Path]
) -> None:
    command("sacct", f"[[ $* == *WorkDir* ]] && echo '{ROOT}|pretrain'")
    shown = f"JobId=92 JobState=FAILED ExitCode=2:0 Command=/x/jobs/pretrain.sbatch {DIGITS} a.b=1"
    command("scontrol", f"echo '{shown} WorkDir={ROOT}'")
    out = launch("why", "92")[1]
    assert out.startswith("job 92: config\n")
    assert f"python -m launch preflight {DIGITS.relative_to(ROOT)}" in out


def test_a_cancel_of_the_launcher_is_told_from_scancel(run: RunFolder, why: Why) -> None:
    record(run, "stopped", step=3)
    (run.attempt(1) / CANCELLED).touch()
    found = why()
    assert found["cause"] == "scancel"
    assert found["what"].startswith("you, by python -m launch cancel, cancelled the job")


def test_a_study_tells_runs_that_failed_alike_once(site: Path, launch: Launch) -> None:
    study = StudyFolder(site / "grid-1")
    study.jobs.mkdir(parents=True)
    study.write_rows(
        StudyRow(index=i, order=i, cell=f"c{i}", repeat=1, shape="s", digest="d", levels={})
        for i in range(8)
    )
    for i in range(8):
        path = study.cell(f"c{i}")
        (path / "attempts" / "001").mkdir(parents=True)
        (path / "config.yaml").write_text("train: {steps: 5}\n")
        if i < 6:
            message = f"KeyError: 'weights of rank {i}'"
            record(RunFolder(path), "failed", reason="crash", message=message)
        else:
            record(RunFolder(path), "done", step=5)
    code, out, err = launch("why", study.path)
    assert code == 0
    assert "8 runs: 6 failed, 2 done" in err
    lines = out.splitlines()
    assert lines[0] == "6 ended alike: c0, c1, c2, c3, c4 and 1 more; the first:"
    assert out.count("KeyError") == 1
    assert lines[-1] == f"all of them again: python -m launch rerun {study.path}"
    (group,) = json.loads(launch("why", study.path, "--json")[1])
    assert (len(group["runs"]), group["cause"]) == (6, "crash")
    code, _, err = launch("tail", study.path)
    assert code == 1
    assert err == f"{study.path}: none of its 8 runs is running now: 6 failed, 2 done\n"
