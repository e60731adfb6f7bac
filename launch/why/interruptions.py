"""The evidence of what Slurm and people do to jobs: limits, preemption, lost nodes, wishes."""

from configs.run.failures import FAILURES
from launch.why import slurm_history
from launch.why.evidence import Evidence

# Slurm warns at a tick of 30 s before the lead that was asked for, and saving takes its time.
_NEAR_LIMIT_S = 180 + 30 + 60


def launch_failure(scene: Evidence) -> list[str]:
    """A job that Slurm could not start: 0:53, and nothing said."""
    start = scene.start
    failed = start is not None and (
        start.reason == "JobLaunchFailure" or (start.exit_code == "0:53" and not scene.texts)
    )
    return scene.by_slurm() if failed and scene.event in ("", "queued") else []


def node_failure(scene: Evidence) -> list[str]:
    """Slurm's word for it."""
    quotes = scene.quotes(FAILURES["node"].slurm)
    return quotes + scene.by_slurm() if quotes or scene.state == "NODE_FAIL" else []


def time_limit(scene: Evidence) -> list[str]:
    """Slurm's word for it, or a save so near to the limit that it was the warning's."""
    quotes = scene.quotes(FAILURES["timeout"].slurm)
    if quotes or scene.state in ("TIMEOUT", "DEADLINE"):
        return quotes + scene.by_slurm() + _order(scene)
    if scene.event != "paused" or _left_s(scene) > _NEAR_LIMIT_S:
        return []
    assert scene.start is not None
    left = f"{scene.start.teller}: {_left_s(scene):.0f} s were left of {scene.start.limit_s} s"
    return [left, *_order(scene)]


def _left_s(scene: Evidence) -> float:
    """Seconds from the end of the attempt to the job's limit; infinite where not known."""
    start = scene.start
    if start is None or start.limit_s is None or start.begun is None:
        return float("inf")
    ended = scene.end.get("time") or start.ended
    return start.begun + start.limit_s - float(ended) if ended else float("inf")


def preemption(scene: Evidence) -> list[str]:
    """Slurm's word for it, or a warning far from the limit where jobs must make way."""
    quotes = scene.quotes(FAILURES["preempted"].slurm)
    if quotes or scene.state == "PREEMPTED":
        return quotes + scene.by_slurm()
    start = scene.start
    if scene.event == "paused" and start and slurm_history.is_preemptable(start.partition):
        far = f"{start.teller}: partition {start.partition} makes way for others; the time limit"
        return [f"{far} was {_far(scene)} away", *_order(scene)]
    return []


def _far(scene: Evidence) -> str:
    left = _left_s(scene)
    return f"{left / 60:.0f} minutes" if left < float("inf") else "not known to be near, or"


def requeue(scene: Evidence) -> list[str]:
    """`scontrol requeue` by a person or by Slurm, while the ranks had no warning."""
    quotes = scene.quotes(r"DUE TO JOB REQUEUE")
    by_slurm = scene.state == "REQUEUED" and scene.event == ""
    return (
        quotes + scene.by_slurm() if scene.event in ("", "stopped") and (quotes or by_slurm) else []
    )


def scancel(scene: Evidence) -> list[str]:
    """Slurm's word for it."""
    quotes = scene.quotes(r"JOB \S+ ON \S+ CANCELLED AT \S+ \*\*\*")
    asked = scene.event in ("", "stopped") and bool(quotes)
    if scene.state == "CANCELLED" or asked or "cancelled while" in scene.said:
        return quotes + scene.by_slurm() + _order(scene)
    return []


def stop_file(scene: Evidence) -> list[str]:
    """A run that ended in order as it was asked to by its file STOP, or by Ctrl-C."""
    if scene.event != "stopped":
        return []
    stop = scene.run.stop_file if scene.run else None
    by_file = [f"{stop}: is there"] if stop and stop.exists() else []
    return by_file + _order(scene)


def pause(scene: Evidence) -> list[str]:
    """A run that saved and left at a warning, which nothing says more about."""
    return _order(scene) if scene.event == "paused" else []


def _order(scene: Evidence) -> list[str]:
    """What the ranks themselves said to that."""
    return [str(scene.end_quote)] if scene.end_quote else []
