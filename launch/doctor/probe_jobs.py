"""The doctor's jobs: submitted together, watched, and cancelled whatever happens."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from launch.slurm import client
from launch.slurm.client import Refused

SCRIPTS = Path(__file__).parent
POLL_S = 0.5
UMASK = "0026"


@dataclass(kw_only=True)
class ProbeJobs:
    """The folder of the doctor's jobs on the shared file system, and their ids by name."""

    folder: Path
    flags: list[str]
    patience_s: float
    began: float = field(default_factory=time.monotonic)
    jobs: dict[str, str] = field(default_factory=dict)

    def submit(self, name: str) -> None:
        """Queue a job; `Refused` says what sbatch has against it."""
        script = (SCRIPTS / f"{name}.sh").read_text(encoding="utf-8")
        words = ["sbatch", "--parsable", f"--chdir={self.folder}", *self.flags]
        # A umask that nobody has by default: a job that has it took it over.
        answer = client.run("bash", "-c", f'umask {UMASK}; exec "$@"', "bash", *words, text=script)
        if answer.returncode:
            raise Refused(f"sbatch refuses the doctor's job {name}: {answer.stderr.strip()}")
        self.jobs[name] = answer.stdout.strip().split(";")[0]
        self.report(f"{name}: job {self.jobs[name]}")

    def report(self, said: str) -> None:
        """One line of progress."""
        print(f"[{time.monotonic() - self.began:4.0f} s] {said}", file=sys.stderr, flush=True)

    def state(self, name: str) -> str:
        """The state of a job; COMPLETED for one that Slurm forgot."""
        known = client.jobs([self.jobs[name]]).get(self.jobs[name])
        return known.state if known else "COMPLETED"

    def wait(self, name: str, until: Callable[[], bool]) -> bool:
        """Wait until something is so; False where the job ended, or patience did, before that."""
        while not until():
            if time.monotonic() - self.began > self.patience_s:
                self.report(f"{name}: no longer waited for ({self.state(name).lower()})")
                return False
            if self.state(name) in client.ENDED:
                # The file system may be behind.
                time.sleep(POLL_S)
                return until()
            time.sleep(POLL_S)
        return True

    def facts(self, name: str) -> list[list[str]]:
        """What a job has written down so far, as words."""
        try:
            text = (self.folder / f"{name}.facts").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [line.split() for line in text.splitlines() if line.strip()]

    def values(self, name: str, key: str) -> list[str]:
        """The second words of a job's facts of one kind."""
        return [words[1] for words in self.facts(name) if words[0] == key and len(words) > 1]


@contextmanager
def bench(folder: Path, flags: Sequence[str], *, patience_s: float) -> Iterator[ProbeJobs]:
    """A bench whose jobs end with it."""
    one = ProbeJobs(folder=folder, flags=list(flags), patience_s=patience_s)
    try:
        yield one
    finally:
        if one.jobs:
            client.cancel(*one.jobs.values())


def shown_field(job: str, name: str) -> str:
    """A field of `scontrol show job`; empty where it is not there."""
    said = client.run("scontrol", "show", "job", job, "-o").stdout
    found = re.search(rf"(?:^|\s){name}=(\S*)", said)
    return found[1] if found else ""
