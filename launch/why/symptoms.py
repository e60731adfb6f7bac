"""The evidence that faults leave: in records, in the first failing rank's note, in texts."""

from collections.abc import Callable

from configs.run.failures import FAILURES
from launch.why.evidence import Evidence

PORT = r"EADDRINUSE|[Aa]ddress already in use"
# By TERM (15) torchrun itself ends the ranks that are left, by ABRT (6) a process ends itself.
KILLED = r"Signal (?!15\b|6\b)\d+ \(SIG\w+\) received by PID"
KILLED_BRIEFLY = r"exitcode\s*: -(?!15\b|6\b)\d+|\(exitcode: -(?!15\b|6\b)\d+\)"


def _failed(scene: Evidence) -> bool:
    """Whether the attempt ended badly: an end in order is not looked through for errors."""
    return scene.event in ("failed", "")


def of_reason(reason: str) -> Callable[[Evidence], list[str]]:
    """Evidence of an end that was recorded with a reason."""

    def find(scene: Evidence) -> list[str]:
        if reason == "config" and scene.run is None:
            return _refused(scene)
        return scene.recorded() if _failed(scene) and scene.reason == reason else []

    return find


def _refused(scene: Evidence) -> list[str]:
    """Our commands leave with 2 where a person must mend something."""
    if scene.start is None or scene.start.exit_code != "2:0":
        return []
    return [*(str(quote) for text in scene.texts for quote in text.last()), *scene.by_slurm()]


def _found(reason: str, pattern: str = "") -> Callable[[Evidence], list[str]]:
    wanted = pattern or FAILURES[reason].output

    def find(scene: Evidence) -> list[str]:
        if not _failed(scene):
            return []
        quotes = scene.quotes(wanted)
        return scene.recorded() + quotes if scene.reason == reason else quotes

    return find


cuda_oom = _found("oom")
disk = _found("disk")
gpu_fault = _found("node")
data = _found("data")
port_clash = _found("port", PORT)
lost_peers = _found("nccl")


def host_oom(scene: Evidence) -> list[str]:
    """The kernel's, Slurm's or Python's word for it."""
    killed = scene.by_slurm() if scene.state == "OUT_OF_MEMORY" else []
    return killed + _found("host_oom", FAILURES["host_oom"].pattern)(scene)


def done(scene: Evidence) -> list[str]:
    """Its own word."""
    return scene.recorded() if scene.event == "done" else []


def skipped(scene: Evidence) -> list[str]:
    """Its study's word."""
    return scene.recorded() if scene.event == "skipped" else []


def killed(scene: Evidence) -> list[str]:
    """A rank that ended by a signal other than torchrun's own."""
    # The watch for hangs ends the ranks itself.
    if not _failed(scene) or scene.reason == "hang":
        return []
    return scene.quotes(KILLED) or scene.quotes(KILLED_BRIEFLY)


def no_progress(scene: Evidence) -> list[str]:
    """The end of attempts without progress, as it was recorded."""
    stalled = scene.reason == "timeout" and "saved nothing new" in scene.said
    return scene.recorded() if stalled else []


def hang(scene: Evidence) -> list[str]:
    """The watch's word, or that of NCCL's or gloo's own clock."""
    if not _failed(scene):
        return []
    return (scene.recorded() if scene.reason == "hang" else []) + scene.quotes(
        FAILURES["hang"].output
    )


def silent_success(scene: Evidence) -> list[str]:
    """A failure for which nothing was wrong but that nothing was said."""
    return scene.recorded() if scene.event == "failed" and "status 0 and" in scene.said else []


def crash(scene: Evidence) -> list[str]:
    """What is left: an exception, or an exit code that is not 0."""
    if scene.event == "failed":
        return scene.recorded() + scene.quotes(r"\w+Error: |^Traceback|\(SIGABRT\)")[:1]
    wrong = scene.state in ("FAILED", "BOOT_FAIL", "DEADLINE")
    last = [str(quote) for text in scene.texts for quote in text.last()]
    return last[:1] + scene.by_slurm() if wrong and scene.event in ("", "queued") else []
