"""What Slurm, NCCL, CUDA, torchrun and Python print when a run ends, as recorded."""

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
CGROUP = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks have been "
    "OOM Killed."
)
ACCOUNTED = (
    "slurmstepd-a40-1: error: StepId=7.0 exceeded memory limit (1446498304 > 262144000), being "
    "killed"
)
PORT = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
    "already in use"
)
XID = "NVRM: Xid (PCI:0000:41:00): 79, pid=12034, name=python, GPU has fallen off the bus."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
TRACEBACK = """\
Traceback (most recent call last):
  File "/program/train.py", line 9, in <module>
    main()
"""
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
NO_PROGRESS = "3 attempts in a row saved nothing new"
NO_MESSAGE = "the ranks left with status {} and no message"
# What the first failing rank notes for each reason; see runs/state/reasons.yaml.
MESSAGES = {
    "config": "train.micro_batch 3 does not divide the 64 images of a rank",
    "oom": CUDA_OOM.partition(": ")[2],
    "host_oom": "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9000000000",
    "disk": "[Errno 28] No space left on device: 'checkpoints/step-000000200'",
    "node": "CUDA error: unspecified launch failure",
    "nan": "the loss is nan at step 210",
    "gradients": "blocks.0.attention.qkv: relative difference 0.3",
    "data": "cannot identify image file '/photos/3.png'",
    "timeout": NO_PROGRESS,
    "preempted": "the job had to make way",
    "hang": "rank 3 on n2 stands still at step 210",
    "nccl": CASCADE.partition("\n")[0].partition(": ")[2],
    "crash": "KeyError: 'weights'",
}


def cancelled(why: str = "") -> str:
    """Return the message of Slurm about the end of a job."""
    return f"slurmstepd: error: *** JOB 71 ON n1 CANCELLED AT 2026-03-01T10:00:00{why} ***"


def report(*ranks: tuple[int, int, str, int, int]) -> str:
    """Return torchrun's report on dead ranks: (second, rank, host, exit code, signal) of each."""
    lines = ["Root Cause (first observed failure):"]
    for second, rank, host, code, signal in ranks:
        lines += ["[0]:", f"  time      : 2026-03-01_10:00:0{second}", f"  host      : {host}"]
        lines += [f"  rank      : {rank} (local_rank: 1)", f"  exitcode  : {code} (pid: 19871)"]
        lines += [f"  traceback : Signal {signal} received by PID 19871"]
    return "\n".join(lines)
