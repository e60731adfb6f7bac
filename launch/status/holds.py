"""Shorten the wait of a requeued job: Slurm holds it until the credential of its last start is old.

That is two minutes by default. The job's owner may change its begin time; a site may forbid it.
"""

from collections.abc import Iterable, Mapping

from launch.slurm import client
from launch.slurm.client import Job
from launch.status.state import Standing

# Not at once: a start in the second in which a node revokes the last credential is killed.
MARGIN_S = 5


class Holds:
    """The holds that were looked at: each is shortened once."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def shorten(self, standings: Iterable[Standing], jobs: Mapping[str, Job]) -> list[str]:
        """Let the jobs of runs that were requeued begin soon; what there is to say of it."""
        remarks = []
        for one in standings:
            job = jobs.get(one.job or "")
            if job is None or one.job in self._asked or not _is_held(one, job):
                continue
            assert one.job is not None
            self._asked.add(one.job)
            remarks.append(_begin_soon(one.job))
        return remarks


def _is_held(one: Standing, job: Job) -> bool:
    """Whether it waits for a begin time that nobody but Slurm gave it: it has run before."""
    return one.event in ("started", "paused") and (job.state, job.reason) == (
        "PENDING",
        "BeginTime",
    )


def _begin_soon(job: str) -> str:
    answer = client.run("scontrol", "update", f"jobid={job}", f"StartTime=now+{MARGIN_S}")
    if answer.returncode:
        return f"job {job} is held after its requeue, and this site lets nobody end that"
    return f"job {job} was held after its requeue: it may begin in {MARGIN_S} s"
