"""Control a real Slurm on this machine: start, submit, wait, query, disturb, stop."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

SCRIPTS = Path(__file__).resolve().parents[2] / "env" / "slurm"
NODES = ("a40-1", "a40-2", "a100-1", "a100-2")
FINAL_STATES = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
)


def wait_until(condition: Callable[[], object], *, timeout: float = 120, what: str = "it") -> None:
    """Poll until `condition()` is true; raise `TimeoutError`, which names `what`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(0.05)


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the variables of an outer Slurm."""
    outer = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_")
    return {key: value for key, value in os.environ.items() if not key.startswith(outer)}


class Cluster:
    """A Slurm with its state in `folder`. Job ids are strings, as Slurm prints them."""

    def __init__(self, folder: Path, *, slurm_conf: str) -> None:
        self.folder = folder
        self.environment = clean_environment() | {"SLURM_CONF": slurm_conf}

    @classmethod
    def start(cls, folder: Path, *, lines: Sequence[str] = ()) -> Self:
        """Start a Slurm; `lines` of slurm.conf, such as "KillWait=30", replace the defaults.

        Raise `RuntimeError` with the end of the log if it does not start.
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
        exported = answer.stdout.splitlines()[0]
        return cls(folder, slurm_conf=exported.removeprefix("export SLURM_CONF="))

    def stop(self) -> None:
        """Stop the daemons and jobs and remove the state."""
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
        """Run srun, salloc or any command against this cluster; `env` extends its environment.

        Raise `AssertionError` with the output if `check` is set and the command fails.
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
        """Submit these arguments, or the text of a script, with sbatch; return the job id."""
        if script and not script.startswith("#!"):
            script = f"#!/bin/bash\n{script}"
        answer = self.run("sbatch", "--parsable", *arguments, cwd=cwd, env=env, stdin=script)
        return answer.stdout.strip().split(";")[0]

    def squeue(self, job: str, form: str) -> str:
        """Return a `squeue -o` field of a job, such as "%T"; "" if Slurm has forgotten the job."""
        answer = self.run("squeue", "-h", "-t", "all", "-j", job, "-o", form, check=False)
        return answer.stdout.strip()

    def state(self, job: str) -> str:
        """Return the state: PENDING, RUNNING, COMPLETED ..."""
        return self.squeue(job, "%T")

    def reason(self, job: str) -> str:
        """Return why the job is pending: Resources, BeginTime, Dependency ..."""
        return self.squeue(job, "%r")

    def restarts(self, job: str) -> int:
        """Return how often the job was requeued and restarted."""
        answer = self.run("squeue", "-h", "-t", "all", "-j", job, "-O", "RestartCnt")
        return int(answer.stdout)

    def nodes(self, job: str) -> list[str]:
        """Return the nodes of the job, the batch node first."""
        return self.run("scontrol", "show", "hostnames", self.squeue(job, "%N")).stdout.split()

    def node_states(self) -> dict[str, str]:
        """Return the state of each node: idle, down ...; a trailing * means no response."""
        answer = self.run("sinfo", "-h", "-N", "-o", "%N %T").stdout
        return dict(line.split() for line in answer.splitlines())

    def sacct(self, job: str, *fields: str, duplicates: bool = False) -> list[dict[str, str]]:
        """Return the accounting rows of a job and its steps; `duplicates` adds earlier starts."""
        answer = self.run(
            "sacct", "-n", "--parsable2", "-j", job, f"--format={','.join(fields)}",
            *(["--duplicates"] if duplicates else []),
        )  # fmt: skip
        rows = answer.stdout.splitlines()
        return [dict(zip(fields, row.split("|"), strict=True)) for row in rows]

    def accounted(self, job: str, *fields: str, timeout: float = 30) -> dict[str, str]:
        """Wait for the end of the job in the accounting, 1-2 s after it; return the row.

        A job whose end is recorded before its start is called "allocation" until then.
        """

        def row() -> dict[str, str]:
            rows = self.sacct(job, "State", *fields)
            if not rows or rows[0].get("JobName") == "allocation":
                return {}
            return rows[0] if rows[0]["State"].split()[0] in FINAL_STATES else {}

        wait_until(row, timeout=timeout, what=f"accounting of job {job}")
        return row()

    def wait(self, job: str, *states: str, timeout: float = 60) -> str:
        """Wait for one of `states`, or for any final state, and return it.

        Raise `TimeoutError` with `scontrol show job` after the timeout or another final state.
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
        """Send the batch shell USR1, as slurmd does for --signal=B:USR1@... before the limit.

        Not by scancel, which may send the signal twice, 5 s apart.
        """
        os.kill(_batch_shell(self.squeue(job, "%A")), signal.SIGUSR1)

    def bring_limit_near(self, job: str, *, seconds: int = 40) -> None:
        """Move the job's end time close; Slurm acts on it at its next check, every 30 s."""
        self.run("scontrol", "update", f"jobid={job}", f"EndTime=now+{seconds}")

    def end_requeue_hold(self, job: str, *, timeout: float = 60) -> None:
        """Wait until a job is requeued, and shorten the time for which it is held to two seconds.

        Not to none: in the second in which slurmd revokes the last credential, it mistakes a new
        start for the last one, and Slurm kills the job ("Job credential revoked").
        """
        before = self.restarts(job)
        wait_until(
            lambda: self.state(job) == "PENDING" or self.restarts(job) > before,
            timeout=timeout,
            what=f"job {job} to be requeued",
        )
        # Slurm refuses if the hold has ended meanwhile.
        self.run("scontrol", "update", f"jobid={job}", "StartTime=now+2", check=False)

    def lose_node(self, node: str, *, tasks: Literal["linger", "die"] = "linger") -> None:
        """Kill a node's slurmd and mark the node down; its tasks linger or die."""
        self.run(SCRIPTS / "node", "crash" if tasks == "die" else "kill", node, self.folder)

    def restore_node(self, node: str) -> None:
        """Restart a lost node's slurmd; return once Slurm can use the node."""
        self.run(SCRIPTS / "node", "resume", node, self.folder)

    def allow_jobs(self, count: int) -> None:
        """Let `count` jobs run at once until the next `clear`; -1 for any number."""
        self.run("sacctmgr", "--immediate", "modify", "cluster", "set", f"GrpJobs={count}")

    def clear(self) -> None:
        """Cancel every job, restore lost nodes, and wait until all are idle and one job may run."""
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
        self.allow_jobs(1)


def _batch_shell(job: str) -> int:
    """Return the process on this machine that runs the batch script of a job."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            variables = (folder / "environ").read_text(errors="replace").split("\0")
            # 26.05 numbers the batch script as a step, too: -5.
            is_step = any(re.fullmatch(r"SLURM_STEP_ID=\d+", variable) for variable in variables)
            if is_step or f"SLURM_JOB_ID={job}" not in variables:
                continue
            if Path("/proc", parent, "comm").read_text() == "slurmstepd\n":
                return int(folder.name)
        except OSError:  # the process has ended
            continue
    raise AssertionError(f"job {job} runs no batch script")
