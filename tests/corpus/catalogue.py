"""Every kind of end that a run can have, as planted `RUNS` in `GROUPS`."""

import json
from pathlib import Path

from tests.corpus.log_texts import (
    ACCOUNTED,
    CASCADE,
    CGROUP,
    CUDA_OOM,
    ECC,
    MESSAGES,
    NO_MESSAGE,
    NO_PROGRESS,
    PORT,
    SYNTAX_ERROR,
    TRACEBACK,
    WATCHDOG,
    XID,
    cancelled,
    report,
)
from tests.corpus.planting import Attempt, Run, Start

TRAINED = ("started 0", "steps 10-200", "saved 200", "steps 210-250")


def one(name: str, *records: str, job: Start | None = None, kind: str = "pretrain", **of: object
) -> Run:  # fmt: skip
    """Return a run of one attempt; `of` are fields of the attempt, or `in_run` files of the run."""
    in_run = of.pop("in_run", {})
    more = {key: of.pop(key) for key in ("submitted", "job_output", "before") if key in of}
    attempt = Attempt(records=records, **of)  # type: ignore[arg-type]
    return Run(
        name=name, kind=kind, attempts=(attempt,), job=(job,) if job else None, files=in_run, **more
    )  # type: ignore[arg-type]


def over(state: str, exit_code: str = "0:0", *, ended_s: int = 400, **of: object) -> Start:
    """Return a start that is over, which only the accounting still knows."""
    of = {"known_to": ("sacct",)} | of
    return Start(state=state, exit_code=exit_code, ended_s=ended_s, **of)  # type: ignore[arg-type]


VERSION_1 = Path(__file__).parents[1] / "runs/versions/v1"
RUNNING = Start(state="RUNNING")
WAITS = Start(state="PENDING", reason="BeginTime")
PRIORITY = Start(state="PENDING", reason="Priority")
LOST = Start(state="COMPLETED", ended_s=400, known_to=())

BEFORE_THE_FIRST_ATTEMPT = [
    Run(name="new"),
    Run(name="new-without-attempts-folder", files={"-attempts": ""}),
    Run(name="queued-here", before=("queued",)),
    Run(name="queued-without-attempts-folder", before=("queued",), files={"-attempts": ""}),
    Run(name="queued-waits", before=("queued",), job=(PRIORITY,)),
    Run(name="queued-reason-with-a-bar", before=("queued",),
        job=(Start(state="PENDING", reason="Nodes a|b", known_to=("squeue",)),)),
    Run(name="queued-forgotten", before=("queued",), job=(LOST,)),
    Run(name="queued-launch-failure", before=("queued",),
        job=(over("FAILED", "0:53", reason="JobLaunchFailure", known_to=("scontrol",)),)),
    Run(name="queued-cancelled", before=("queued",), job=(over("CANCELLED by 0"),)),
    Run(name="queued-node-fail", before=("queued",), job=(over("NODE_FAIL"),)),
    Run(name="queued-boot-fail", before=("queued",), job=(over("BOOT_FAIL"),)),
    Run(name="queued-deadline", before=("queued",), job=(over("DEADLINE"),)),
    Run(name="queued-timeout", before=("queued",), job=(over("TIMEOUT"),)),
    Run(name="queued-config-error", before=("queued",), job=(over("FAILED", "2:0"),),
        job_output="site: local\nConfigError: train.micro_batch 3 does not divide"),
    Run(name="queued-failed-start", before=("queued", "failed config: the job was not accepted")),
    Run(name="queued-then-stopped", before=("queued", "stopped: cancelled while it waited"),
        job=(over("CANCELLED by 0"),)),
    Run(name="skipped-forecast", before=("skipped forecast: needs 31 GiB on a GPU of 24 GB",)),
    Run(name="skipped-oom", before=("queued", "skipped oom by failed-oom: needs as much memory")),
    Run(name="skipped-decided", before=("queued", "skipped decided by done: changes no verdict")),
    Run(name="skipped-alike", before=("queued", "skipped crash by failed-crash: 3 cells "
        "failed alike, first failed-crash (crash): KeyError")),
    one("starting", before=("queued",), job=RUNNING),
    one("starting-cancelled", before=("queued",), job=over("CANCELLED by 0")),
]  # fmt: skip

WITHOUT_A_RECORDED_END = [
    one("started-here", *TRAINED),
    one("started-without-step", "started", "steps 10-50"),
    one("started-in-a-session", *TRAINED, job=RUNNING, submitted=False),
    one("running", *TRAINED, job=RUNNING),
    one("completing", *TRAINED, job=Start(state="COMPLETING")),
    one("saving", "started 0", "steps 10-500", job=RUNNING),
    one("evaluating", "started 0", "steps 10-600", "saved 600", job=RUNNING),
    one("sampling", "started 0", "steps 10-600", "saved 600", "evaluated 600", job=RUNNING),
    one("started-lost", *TRAINED, job=LOST),
    one("started-and-queued-again", *TRAINED, job=WAITS),
    *(
        one(f"started-{state.lower().replace('_', '-')}", *TRAINED, job=over(state, code))
        for state, code in (
            ("TIMEOUT", "0:0"), ("NODE_FAIL", "1:0"), ("OUT_OF_MEMORY", "0:125"), ("FAILED", "1:0"),
            ("PREEMPTED", "0:0"), ("BOOT_FAIL", "0:0"), ("DEADLINE", "0:15"), ("COMPLETED", "0:0"),
            ("REQUEUED", "0:0"),
        )
    ),
    one("started-cancelled", *TRAINED, job=over("CANCELLED by 0", "0:15")),
    one("started-job-killed-9", *TRAINED, job=over("FAILED", "0:9")),
    one("started-job-killed-term", *TRAINED, job=over("FAILED", "0:15")),
    one("started-job-says-137", *TRAINED, job=over("FAILED", "137:0")),
    one("started-misuse", *TRAINED, job=over("FAILED", "2:0")),
    one("started-cancel-mark", *TRAINED, files={"CANCEL": ""}),
    one("started-stop-file", *TRAINED, in_run={"STOP": ""}),
    one("started-attempt-stop-file", *TRAINED, files={"STOP": ""}),
    *(
        one(f"started-slurmstepd-{name}", *TRAINED, output=f"step 250\n{line}")
        for name, line in {
            "time-limit": cancelled(" DUE TO TIME LIMIT"),
            "node": cancelled(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"),
            "preemption": cancelled(" DUE TO PREEMPTION"),
            "requeue": cancelled(" DUE TO JOB REQUEUE"),
            "scancel": cancelled(),
            "memory": ACCOUNTED,
            "cgroup": CGROUP,
        }.items()
    ),
    one("rank-killed-9", *TRAINED, output=report((1, 1, "n1", -9, "9 (SIGKILL)"))),
    one("rank-killed-term", *TRAINED, output=report((1, 1, "n1", -15, "15 (SIGTERM)"))),
    one("rank-killed-segv", *TRAINED, output=report((1, 1, "n1", -11, "11 (SIGSEGV)"))),
    one("rank-aborted", *TRAINED, output=report((1, 1, "n1", -6, "6 (SIGABRT)"))),
    one("no-log-at-all"),
    one("note-of-oom-alone", *TRAINED, note=f"2 oom: {CUDA_OOM}"),
    one("note-of-node", *TRAINED, note=f"2 node: {ECC}"),
    one("note-of-nccl-and-cgroup", *TRAINED, note=f"1 nccl: {CASCADE}", output=CGROUP),
    one("note-of-nan-and-cgroup", *TRAINED, note="2 nan: the loss is nan", output=CGROUP),
    one("note-is-truncated", *TRAINED, files={"error.json": '{"reason": "da'}),
    one("exception-in-output", *TRAINED, output=SYNTAX_ERROR),
]  # fmt: skip

ENDED = [
    one("done", "started 0", "steps 10-600", "saved 600", "done 600", job=over("COMPLETED")),
    one("done-here", "started 0", "steps 10-600", "saved 600", "done 600"),
    one("paused-here", *TRAINED, "paused 250"),
    one("paused-far-from-the-limit", *TRAINED, "paused 250", job=over("COMPLETED")),
    one("paused-near-the-limit", *TRAINED, "paused 250", job=over("COMPLETED", limit="00:08:00")),
    one("paused-in-a-preemptable-partition", *TRAINED, "paused 250",
        job=over("REQUEUED", partition="preempt")),
    Run(name="paused-and-queued-again", attempts=(Attempt(records=(*TRAINED, "paused 250")),),
        job=(over("REQUEUED", limit="00:08:00"), WAITS)),
    Run(name="paused-far-and-queued-again", attempts=(Attempt(records=(*TRAINED, "paused 250")),),
        job=(over("REQUEUED"), WAITS)),
    Run(name="paused-then-cancelled", attempts=(Attempt(records=(*TRAINED, "paused 250")),),
        job=(over("REQUEUED", limit="00:08:00"), over("CANCELLED by 0"))),
    one("paused-cancelled-before-the-requeue", *TRAINED, "paused 250", job=over("CANCELLED by 0")),
    one("paused-job-lost", *TRAINED, "paused 250", job=LOST),
    one("paused-end-of-a-turn", *TRAINED, "paused 250", entry={"turn": "1120-093000-1a2b:250"}),
    one("paused-within-a-turn", *TRAINED, "paused 250", entry={"turn": "1120-093000-1a2b:300"}),
    one("paused-with-stop-file", *TRAINED, "paused 250", in_run={"STOP": ""}),
    one("stopped-here", *TRAINED, "stopped 250"),
    one("stopped-by-stop-file", *TRAINED, "stopped 250", in_run={"STOP": ""}),
    one("stopped-by-scancel", *TRAINED, "stopped 250", job=over("CANCELLED by 0", "0:15")),
    one("stopped-job-forgotten", *TRAINED, "stopped 250", job=LOST),
    one("stopped-by-ditbench-cancel", *TRAINED, "stopped 250", job=over("CANCELLED by 0"),
        files={"CANCEL": "", "STOP": ""}),
    one("stopped-by-a-requeue", *TRAINED, "stopped 250", output=cancelled(" DUE TO JOB REQUEUE")),
    one("stopped-because-an-agent-died", *TRAINED, "stopped 250", job=over("FAILED", "137:0")),
]  # fmt: skip

FAILED = [
    *(
        one(f"failed-{reason.replace('_', '-')}", *TRAINED, f"failed {reason}@250: {message}",
            note=f"2 {reason}: {message}", job=over("FAILED", "1:0"))
        for reason, message in MESSAGES.items()
    ),
    *(
        one(f"unsaved-{reason.replace('_', '-')}", "started 0", f"failed {reason}: {message}")
        for reason, message in MESSAGES.items()
    ),
    one("failed-without-reason", *TRAINED, "failed 250"),
    one("failed-unknown-reason", *TRAINED, "failed weather@250: it rains"),
    one("failed-xid-beside-nccl", *TRAINED, f"failed nccl: {MESSAGES['nccl']}",
        note=f"1 nccl: {CASCADE}", output=f"{CASCADE}\n{XID}"),
    one("failed-ecc-beside-nccl", *TRAINED, f"failed nccl: {MESSAGES['nccl']}",
        note=f"1 nccl: {CASCADE}", output=f"{CASCADE}\n{ECC}"),
    one("failed-cgroup-beside-crash", *TRAINED, "failed crash: Connection closed by peer",
        note="0 crash: Connection closed by peer",
        output=f"{CGROUP}\n{report((1, 1, 'n1', -9, '9 (SIGKILL)'))}"),
    one("failed-port-clash", "started 0", f"failed nccl: {PORT}", note=f"0 nccl: {PORT}",
        output=PORT),
    one("failed-oom-in-the-log-of-a-rank", *TRAINED, f"failed nccl: {MESSAGES['nccl']}",
        note=f"0 nccl: {CASCADE}", files={"ranks/rank-00000.log": CASCADE,
        "ranks/rank-00003.log": f"step 7\n{CUDA_OOM}"}),
    one("failed-oom-said-by-all", *TRAINED, f"failed oom: {MESSAGES['oom']}",
        note=f"2 oom: {MESSAGES['oom']}", output=f"[rank2]: {CUDA_OOM}",
        files={"ranks/rank-00002.log": f"[rank2]: {CUDA_OOM}"}),
    one("failed-hang-that-nccl-found", *TRAINED, "failed nccl: late", note=f"0 nccl: {WATCHDOG}",
        output=f"{WATCHDOG}\n{report((1, 1, 'n1', -6, '6 (SIGABRT)'))}", files={
            "ranks/nccl-0": ""}),
    one("failed-hang-that-our-watchdog-found", *TRAINED, f"failed hang: {MESSAGES['hang']}",
        note=f"3 hang: {MESSAGES['hang']}", output=report((1, 0, "n1", -9, "9 (SIGKILL)"))),
    one("failed-killed-among-a-cascade", *TRAINED, f"failed nccl: {MESSAGES['nccl']}",
        note=f"0 nccl: {CASCADE}", output="\n".join([
            report((3, 0, "n0", 1, "6 (SIGABRT)")), report((4, 5, "n2", -7, "7 (SIGBUS)")),
            report((2, 3, "n1", -11, "11 (SIGSEGV)")), report((1, 7, "n3", -15, "15 (SIGTERM)"))])),
    one("failed-killed-beside-the-root-of-torchrun", *TRAINED, f"failed nccl: {MESSAGES['nccl']}",
        note=f"2 nccl: {CASCADE}", output="\n".join([
            report((1, 3, "n1", -9, "9 (SIGKILL)")).replace("Root Cause (first", "Failures (other"),
            report((1, 2, "n1", 1, "1"))])),
    one("failed-silently", *TRAINED, f"failed crash: {NO_MESSAGE.format(0)}"),
    one("failed-without-a-message", "started 0", f"failed crash: {NO_MESSAGE.format(1)}",
        output=SYNTAX_ERROR),
    one("failed-exception-with-its-line", *TRAINED, "failed crash: no attribute 'config'",
        files={"error.json": json.dumps({
            "rank": 0, "reason": "crash", "message": "no attribute 'config'",
            "traceback": 'Traceback\n  File "/x/train/a.py", line 7, in f\n  File "/v/site-packages'
            '/t.py", line 8\n    y\nAttributeError: no attribute \'config\'\n'})},
        output="AttributeError: no attribute 'config'"),
    one("failed-terminal-escapes", *TRAINED, "failed crash: \x1b[2J evil",
        output="Traceback \x1b[31mRuntimeError: \x07bell"),
]  # fmt: skip

UNSAVED = Attempt(records=("started 250", "paused 250"))
SEVERAL_ATTEMPTS = [
    Run(name="requeued-twice-then-done", job=(
        over("REQUEUED", limit="00:08:00"), over("REQUEUED", "1:0"), over("COMPLETED"),
    ), attempts=(
        Attempt(records=(*TRAINED, "paused 250")),
        Attempt(records=("started 250", "saved 400", f"failed nccl: {MESSAGES['nccl']}"),
                note=f"1 nccl: {CASCADE}"),
        Attempt(records=("started 400", "steps 410-600", "saved 600", "done 600")),
    )),
    Run(name="requeued-and-running", job=(over("NODE_FAIL"), RUNNING), attempts=(
        Attempt(records=TRAINED), Attempt(records=("started 200", "steps 210-240")),
    )),
    Run(name="requeued-after-a-node-failure", job=(over("NODE_FAIL"), WAITS), attempts=(
        Attempt(records=(*TRAINED, f"failed node: {MESSAGES['node']}"),
                note=f"1 node: {MESSAGES['node']}"),
    )),
    Run(name="two-attempts-without-progress", job=(over("REQUEUED"),) * 3, attempts=(
        Attempt(records=(*TRAINED, "paused 250")), UNSAVED, UNSAVED,
    )),
    Run(name="three-attempts-without-progress", job=(over("REQUEUED"),) * 4, attempts=(
        Attempt(records=(*TRAINED, "paused 250")), UNSAVED, UNSAVED, UNSAVED,
    )),
    Run(name="stalled-and-recorded", job=(over("REQUEUED"),) * 2, attempts=(
        Attempt(records=("started 0", "paused 1")),
        Attempt(records=(f"failed timeout: {NO_PROGRESS}",)),
    )),
    Run(name="queued-again-by-a-person", job=(over("FAILED", "1:0"), PRIORITY), attempts=(
        Attempt(records=(*TRAINED, "failed crash: KeyError: 'weights'")),
    ), after=("queued",)),
    Run(name="queued-again-here", attempts=(Attempt(records=(*TRAINED, "stopped 250")),),
        after=("queued",)),
]  # fmt: skip

OTHER_KINDS = [
    *(
        one(f"{kind}-{name}", *lines, kind=kind, note=note, output=output)
        for kind in ("embedded", "aitoolkit")
        for name, lines, note, output in (
            ("done", ("started 0", "saved 600", "done 600"), "", ""),
            ("paused", ("started 0", "saved 200", "paused 200"), "", ""),
            ("stopped", ("started 0", "saved 200", "stopped 200"), "", ""),
            ("oom", ("started 0", f"failed oom: {CUDA_OOM}"), f"0 oom: {CUDA_OOM}", CUDA_OOM),
            ("nan", ("started 0", "saved 200", "failed nan: loss nan"), "0 nan: loss nan", ""),
            ("data", ("started 0", f"failed data: {MESSAGES['data']}"),
             f"0 data: {MESSAGES['data']}", ""),
        )
    ),
    one("aitoolkit-killed", "started 0", "saved 200", "failed host_oom: ai-toolkit was killed",
        kind="aitoolkit", note="0 host_oom: ai-toolkit was killed"),
    one("embedded-killed", "started 0", "saved 200", kind="embedded",
        output=report((1, 0, "n1", -9, "9 (SIGKILL)"))),
    one("command-done", "started", "saved", "done", kind="command"),
    one("command-paused", "started", "saved", "paused", kind="command"),
    one("command-stopped", "started", "stopped", kind="command"),
    one("command-crash", "started", "failed crash: exit status 1: ImportError: no x",
        kind="command", output=f"{TRACEBACK}ImportError: no x"),
    one("command-oom", "started", f"failed oom: exit status 1: {CUDA_OOM}", kind="command",
        output=f"{TRACEBACK}{CUDA_OOM}"),
    one("command-disk", "started", "failed disk: exit status 1: no traceback in its output",
        kind="command", output="cp: error writing 'a': No space left on device"),
    one("command-nan", "started", "failed nan: exit status 1: no traceback", kind="command",
        output="step 9 loss is nan: Loss is nan"),
    one("command-killed-term", "started", "failed crash: signal SIGTERM: no traceback",
        kind="command"),
    one("command-timeout", "started", "failed timeout: it had not ended at the time limit",
        kind="command"),
    one("command-not-found", "started", "failed config: python3: cannot be started: No such file",
        kind="command"),
    # Killed by signal 9: `runs run` records no end, and its status is 137.
    one("command-killed-9", "started", "saved", kind="command", output="step 9 loss 2.0"),
    one("command-killed-9-and-closed", "started", f"failed crash: {NO_MESSAGE.format(137)}",
        kind="command", output="step 9 loss 2.0"),
    one("command-running", "started", kind="command", job=RUNNING, output="step 9 loss 2.0"),
    one("sample-done", "started", "done", kind="sample"),
    one("sample-oom", "started", f"failed oom: {MESSAGES['oom']}", kind="sample"),
    one("gns-done", "started", "done", kind="gns"),
    one("gns-data", "started", f"failed data: {MESSAGES['data']}", kind="gns"),
]  # fmt: skip

DAMAGED = [
    # Written by an older ditbench.
    Run(name="version-1", files={
        str(path.relative_to(VERSION_1)): path.read_text()
        for path in sorted(VERSION_1.rglob("*")) if path.is_file()}),
    one("damaged-manifest", *TRAINED, "done 600", in_run={"manifest.json": "[]"}),
    one("damaged-config", *TRAINED, "done 600", in_run={"config.yaml": "train: ["}),
    one("damaged-records", in_run={"metrics.jsonl": '{"time": 1, "attempt": 1, "event": "started"}'
        '\n[]\n{"time": "x"}\n{"time": 9, "attempt": 1, "event": "do'}),
    one("without-manifest", *TRAINED, "paused 250", in_run={"-manifest.json": ""}),
]  # fmt: skip

GROUPS = {
    "before-the-first-attempt": BEFORE_THE_FIRST_ATTEMPT,
    "without-a-recorded-end": WITHOUT_A_RECORDED_END,
    "ended": ENDED,
    "failed": FAILED,
    "several-attempts": SEVERAL_ATTEMPTS,
    "other-kinds": OTHER_KINDS,
    "damaged": DAMAGED,
}
RUNS = [run for runs in GROUPS.values() for run in runs]
