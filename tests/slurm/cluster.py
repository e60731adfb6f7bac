"""A real Slurm on this machine as tests use it: start, submit, wait, ask, disturb, stop."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

SCRIPTS = Path(__file__).resolve().parents[2] / "env" / "slurm"
NODES = ("a40-1", "a40-2", "a100-1", "a100-2")
FINAL_STATES = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
)


def wait_until(condition: Callable[[], object], *, timeout: float = 30, what: str = "it") -> None:
    """Poll until `condition()` is true; TimeoutError naming `what` otherwise."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(0.05)


def clean_environment() -> dict[str, str]:
    """This process's environment without what an outer Slurm job or its user left in it."""
    outer = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_")
    return {key: value for key, value in os.environ.items() if not key.startswith(outer)}


class Cluster:
    """One Slurm whose state lies in `folder`. Job ids are strings, as Slurm prints them."""

    def __init__(self, folder: Path, *, slurm_conf: str) -> None:
        self.folder = folder
        self.environment = clean_environment() | {"SLURM_CONF": slurm_conf}

    @classmethod
    def start(cls, folder: Path, *, lines: Sequence[str] = ()) -> Cluster:
        """Start a Slurm; `lines` of slurm.conf, such as "KillWait=30", replace the usual ones.

        RuntimeError, with the log's end, where it does not come up.
        """
        answer = subprocess.run(
            [SCRIPTS / "up", folder, *lines],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        if answer.returncode:
            raise RuntimeError(f"env/slurm/up failed:\n{answer.stderr}")
        return cls(folder, slurm_conf=answer.stdout.strip().removeprefix("export SLURM_CONF="))

    def stop(self) -> None:
        """Stop its daemons and jobs and remove its state."""
        subprocess.run([SCRIPTS / "down", self.folder], check=True, capture_output=True, timeout=60)

    def run(
        self,
        *command: str | Path,
        check: bool = True,
        timeout: float = 60,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run srun, salloc or any command against this cluster; `env` is added to what it sees.

        AssertionError with its output where `check` and it fails.
        """
        done = subprocess.run(
            command,
            env=self.environment | dict(env or {}),
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode:
            words = " ".join(map(str, command))
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def submit(
        self,
        *arguments: str | Path,
        script: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """`sbatch` these arguments, or `script` as the text of the batch script; the job id."""
        if script and not script.startswith("#!"):
            script = f"#!/bin/bash\n{script}"
        answer = self.run("sbatch", "--parsable", *arguments, cwd=cwd, env=env, stdin=script)
        return answer.stdout.strip().split(";")[0]

    def squeue(self, job: str, form: str) -> str:
        """One `squeue -o` field of a job, such as "%T" or "%r"; "" for a job Slurm forgot."""
        answer = self.run("squeue", "-h", "-t", "all", "-j", job, "-o", form, check=False)
        return answer.stdout.strip()

    def state(self, job: str) -> str:
        """PENDING, RUNNING, COMPLETED ..."""
        return self.squeue(job, "%T")

    def reason(self, job: str) -> str:
        """Why it is pending: Resources, BeginTime, Dependency ..."""
        return self.squeue(job, "%r")

    def restarts(self, job: str) -> int:
        """How often it was requeued and started again."""
        answer = self.run("squeue", "-h", "-t", "all", "-j", job, "-O", "RestartCnt")
        return int(answer.stdout)

    def nodes(self, job: str) -> list[str]:
        """The nodes it runs on, the batch node first."""
        return self.run("scontrol", "show", "hostnames", self.squeue(job, "%N")).stdout.split()

    def node_states(self) -> dict[str, str]:
        """idle, mixed, allocated, down ... of each node; a trailing * means it does not answer."""
        answer = self.run("sinfo", "-h", "-N", "-o", "%N %T").stdout
        return dict(line.split() for line in answer.splitlines())

    def sacct(self, job: str, *fields: str, duplicates: bool = False) -> list[dict[str, str]]:
        """Accounting rows of the job and its steps; `duplicates` adds those before a requeue."""
        answer = self.run(
            "sacct", "-n", "--parsable2", "-j", job, f"--format={','.join(fields)}",
            *(["--duplicates"] if duplicates else []),
        )  # fmt: skip
        rows = answer.stdout.splitlines()
        return [dict(zip(fields, row.split("|"), strict=True)) for row in rows]

    def accounted(self, job: str, *fields: str, timeout: float = 30) -> dict[str, str]:
        """The job's row once accounting knows that it has ended, a second or two after it did."""

        def row() -> dict[str, str]:
            rows = self.sacct(job, "State", *fields)
            return rows[0] if rows and rows[0]["State"].split()[0] in FINAL_STATES else {}

        wait_until(row, timeout=timeout, what=f"accounting of job {job}")
        return row()

    def wait(self, job: str, *states: str, timeout: float = 60) -> str:
        """Wait for one of `states`, or for any final one; returns it.

        TimeoutError with what Slurm knows of the job, also at once where it ended otherwise.
        """
        wanted = set(states) or FINAL_STATES
        deadline = time.monotonic() + timeout
        while (state := self.state(job)) not in wanted:
            if state in FINAL_STATES or time.monotonic() > deadline:
                shown = self.run("scontrol", "show", "job", job, check=False).stdout
                raise TimeoutError(f"job {job} is {state}, not {' or '.join(wanted)}\n{shown}")
            time.sleep(0.05)
        return state

    def cancel(self, *jobs: str) -> None:
        self.run("scancel", *jobs)

    def requeue(self, job: str) -> None:
        self.run("scontrol", "requeue", job)

    def warn(self, job: str) -> None:
        """Send the batch shell the USR1 of --signal=B:USR1@..., without waiting for the limit."""
        self.run("scancel", "--batch", "--signal=USR1", job)

    def bring_limit_near(self, job: str, *, seconds: int = 40) -> None:
        """Let the job's time end soon; Slurm acts on it at its next 30 s tick."""
        self.run("scontrol", "update", f"jobid={job}", f"EndTime=now+{seconds}")

    def end_requeue_hold(self, job: str, *, timeout: float = 60) -> None:
        """Wait until a requeued job is held by its begin time, and let it start in two seconds.

        Not now: a start in the second in which slurmd revoked the last one's credential is taken
        for that last one, and Slurm kills the job ("Job credential revoked").
        """
        wait_until(
            lambda: self.squeue(job, "%T %r") == "PENDING BeginTime",
            timeout=timeout,
            what=f"job {job} to be requeued",
        )
        self.run("scontrol", "update", f"jobid={job}", "StartTime=now+2")

    def lose_node(self, node: str, *, tasks: Literal["linger", "die"] = "linger") -> None:
        """Kill a node's slurmd and mark it down; its tasks linger unless they shall die too."""
        self.run(SCRIPTS / "node", "crash" if tasks == "die" else "kill", node, self.folder)

    def restore_node(self, node: str) -> None:
        """Start a lost node's slurmd again; returns once Slurm would use it."""
        self.run(SCRIPTS / "node", "resume", node, self.folder)

    def clear(self) -> None:
        """Cancel every job, bring lost nodes back, wait until all are idle: as after the start."""
        jobs = self.run("squeue", "-h", "-o", "%A").stdout.split()
        if jobs:
            self.cancel(*set(jobs))
        for node, state in self.node_states().items():
            if state.startswith("down"):
                self.restore_node(node)
            if state.startswith("drain"):
                self.run("scontrol", "update", f"nodename={node}", "state=resume")
        wait_until(
            lambda: set(self.node_states().values()) == {"idle"}, what="all nodes to be idle"
        )
