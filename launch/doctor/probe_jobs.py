"""The doctor's jobs: submit them together and watch them."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launch.slurm import client
from launch.slurm.client import Refused
from runs.state.slurm_job import ENDED

SCRIPTS = Path(__file__).parent
POLL_S = 0.5
# An unusual umask: a job that has it inherited it from sbatch.
UMASK = "0026"


@dataclass(kw_only=True)
class ProbeJobs:
    """The jobs' folder on the shared file system, and their ids by name."""

    folder: Path
    flags: list[str]
    patience_s: float = 1800.0
    began: float = field(default_factory=time.monotonic)
    jobs: dict[str, str] = field(default_factory=dict)

    def submit(self, name: str) -> None:
        """Queue a job; raise `Refused` if sbatch refuses it."""
        script = (SCRIPTS / f"{name}.sh").read_text(encoding="utf-8")
        flags = [f"--chdir={self.folder}", *self.flags]
        try:
            self.jobs[name] = client.submit_text(script, *flags, umask=UMASK)
        except Refused as error:
            raise Refused(f"sbatch refuses the doctor's job {name}: {error}") from None
        self.report(f"{name}: job {self.jobs[name]}")

    def report(self, message: str) -> None:
        """Print one line of progress."""
        elapsed = time.monotonic() - self.began
        print(f"[{elapsed:4.0f} s] {message}", file=sys.stderr, flush=True)

    def state(self, name: str) -> str:
        """Return the state of a job; COMPLETED if Slurm has forgotten it."""
        known = client.query_jobs([self.jobs[name]]).get(self.jobs[name])
        return known.state if known else "COMPLETED"

    def wait(self, name: str, until: Callable[[], bool]) -> bool:
        """Wait for a condition; return False if the job or the patience ends first."""
        while not until():
            if time.monotonic() - self.began > self.patience_s:
                self.report(f"{name}: gave up waiting ({self.state(name).lower()})")
                return False
            if self.state(name) in ENDED:
                # The file system may lag behind.
                time.sleep(POLL_S)
                return until()
            time.sleep(POLL_S)
        return True

    def facts(self, name: str) -> list[list[str]]:
        """Return the lines that a job has written so far, split into words."""
        try:
            text = (self.folder / f"{name}.facts").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [line.split() for line in text.splitlines() if line.strip()]

    def values(self, name: str, key: str) -> list[str]:
        """Return the second word of a job's lines that begin with a key."""
        return [words[1] for words in self.facts(name) if words[0] == key and len(words) > 1]
