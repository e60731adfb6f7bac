"""`launch why` names the rank that failed first."""

from runs.folder import RunFolder
from tests.launch.why.conftest import CASCADE, CUDA_OOM, ROOT_CAUSE, Why, fail, write_log

WATCHDOG = (
    "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1511, OpType=ALLREDUCE, NumelIn=33554432, Timeout(ms)=600000) ran for 600029 "
    "milliseconds before timing out."
)


def test_a_gpu_out_of_memory_is_the_root_of_what_the_other_ranks_say(
    run: RunFolder, why: Why
) -> None:
    fail(run, rank=0, reason="nccl", message=CASCADE)
    write_log(run, "ranks/rank-00000.log", CASCADE)
    write_log(run, "ranks/rank-00003.log", "step 7", CUDA_OOM)
    found = why()
    assert (found["cause"], found["first_failure"]) == ("cuda oom", "rank 3")
    assert found["evidence"] == [f"attempts/001/ranks/rank-00003.log:2: {CUDA_OOM}"]


def test_the_rank_that_others_waited_for_is_named(run: RunFolder, why: Why) -> None:
    fail(run, rank=0, reason="nccl", message=WATCHDOG)
    # NCCL aborts the ranks that waited.
    aborted = ROOT_CAUSE.format(second=1, host="n1", rank=1, code=-6, signal="6 (SIGABRT)")
    write_log(run, "output.log", WATCHDOG, aborted)
    for rank, step in ((0, 40), (1, 40), (2, 39), (3, 40)):
        line = f'{{"step": {step}, "time": 1.0}}'
        write_log(run, f"ranks/arrivals-{rank:05d}.jsonl", line, "torn {")
    assert not any("torchfrtrace" in line for line in why()["evidence"])
    (run.attempt(1) / "ranks" / "nccl-0").touch()
    found = why()
    assert f"collectives: torchfrtrace {run.attempt(1)}/ranks -p nccl-" in found["evidence"]
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


def test_a_killed_rank_is_found_beside_the_one_that_torchrun_saw_first(
    run: RunFolder, why: Why
) -> None:
    fail(run, rank=2, reason="nccl", message=CASCADE)
    killed = ROOT_CAUSE.format(second=1, host="node-1", rank=3, code=-9, signal="9 (SIGKILL)")
    lost = ROOT_CAUSE.format(second=1, host="node-1", rank=2, code=1, signal="1")
    write_log(run, "output.log", killed.replace("Root Cause (first observed failure)", "Failures"))
    write_log(run, "output.log", lost)
    found = why()
    assert (found["cause"], found["first_failure"]) == ("killed", "rank 3 on node-1, by signal 9")
