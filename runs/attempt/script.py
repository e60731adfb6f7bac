"""Run a batch script of the user's as Slurm would run it, and record what happens in a run folder.

A job of `ditbench submit SCRIPT` calls `main`. The script is a process of a group of its own with
the environment, the folder, the output files and the signals that Slurm gives a batch script, and
its exit status becomes the job's.
"""

import contextlib
import io
import math
import os
import re
import resource
import select
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from configs.disk import make_private, read_end
from configs.errors import ConfigError
from configs.files import read_bytes
from configs.load import expect
from configs.schema import Command
from runs.attempt.close import ask_slurm
from runs.attempt.open import claim
from runs.attempt.own_logs import keep_logs, log_files
from runs.attempt.parent import end_with_parent
from runs.attempt.placement import placement, ranks_of
from runs.folder import ROOT, RunFolder
from runs.slurm_env import batch_job, first_environment, is_restarted
from runs.state.fold import reason_of_exit
from runs.state.log_lines import last_exception
from runs.state.reasons import is_disk_full
from runs.trust import check_own

# The files of a run's folder `script/`: the text that runs, and the text of later attempts, in
# which MARK stands for the flags by which it resumes.
FIRST, LATER, MARK = "slurm_script", "slurm_script.resume", "DITBENCH_RESUME_FLAGS"
NEAR_LIMIT_S = 60
_NEWEST = re.compile(r"\{newest:([^}]*)\}")
# The signals that a batch script may handle and this process passes on to it.
_HANDLED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM
)  # fmt: skip
# How long a script that is ended near its limit has between TERM and KILL.
_PATIENCE_S = 20.0
# How long processes that the script leaves behind may go on writing.
_DRAIN_S = 2.0
# A file that was written so shortly before its program was killed may be cut short.
_CUT_S = 1.0


def main(path: str, *arguments: str) -> None:
    """Run an attempt at a run, and end as the script ends."""
    umask = make_private()
    run = RunFolder(Path(path))
    try:
        check_own(run.path)
        config = expect(run.config(), Command, source=run.path)
        # Remarks would stand in the output of the script.
        with contextlib.redirect_stderr(io.StringIO()):
            attempt = claim(run, config, began=time.time())
        status = _Script(run, attempt, config).run([*arguments], umask=umask)
    except (ConfigError, OSError) as error:
        sys.exit(f"ditbench: {error}")
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


class _Script:
    """The process of the script, and the signals that came while it ran."""

    def __init__(self, run: RunFolder, attempt: Path, config: Command) -> None:
        self._run, self._attempt, self._config = run, attempt, config
        self._number = int(attempt.name)
        self._log = _Output(attempt)
        self._came: list[int] = []
        self._is_near_limit = self._is_ended = self._is_killed = False
        self._end_by: float | None = None
        for number in _HANDLED:
            signal.signal(number, lambda number, _: self._came.append(number))
        self._witness = _Witness()

    def run(self, arguments: list[str], *, umask: int) -> int:
        """Run the script to its end, and return its status, negative for a signal."""
        text, resumed = self._text()
        script = self._attempt / FIRST
        script.write_bytes(text)
        script.chmod(0o700)
        placed = placement()
        folder = str(Path.cwd())
        self._run.note(self._number, placement=placed, ranks=ranks_of(placed), folder=folder)
        before = log_files(Path())
        self._run.record_event(self._number, "started", **resumed)
        try:
            process, pipes = self._start([str(script), *arguments], umask=umask)
        except OSError as error:
            message = f"{self._config.script}: cannot be started: {error.strerror}"
            self._fail("config", message)
            print(message, file=sys.stderr)
            return 127
        self._sample_gpus(placed)
        self._follow(process, pipes)
        status = process.wait()
        try:
            requeues = self._record_end(status)
            self._run.note(self._number, ended=time.time())
            keep_logs(self._run, self._number, before)
            if requeues and ask_slurm("requeue_job") is None:
                again = f"ditbench submit {self._run.path}"
                self._fail("timeout", f"this site does not requeue; go on: {again}")
        except OSError as error:
            # The script ended as it did, whether or not there is space to say so.
            _write(2, f"ditbench: {self._run.path}: not all recorded: {error}\n".encode())
        return status

    def _text(self) -> tuple[bytes, dict[str, str]]:
        """Return the text to run, and what it resumes from."""
        folder = self._run.path / "script"
        flags = self._config.resume
        ends = [one for one in self._run.records() if one.get("event") == "paused"]
        killed = ends[-1]["time"] if ends and ends[-1].get("killed") else None
        files = [] if flags is None else [_newest(glob, killed) for glob in globs(flags)]
        if flags is None or self._number == 1 or None in files:
            return read_bytes(folder / FIRST), {}
        found = iter(files)
        words = [_NEWEST.sub(lambda _: str(next(found)), word) for word in shlex.split(flags)]
        marked = read_bytes(folder / LATER)
        return marked.replace(MARK.encode(), os.fsencode(shlex.join(words))), {
            "resumes": ", ".join(map(str, files))
        }

    def _start(
        self, words: list[str], *, umask: int
    ) -> tuple[subprocess.Popen[bytes], dict[int, int]]:
        """Start the script; return its pipes, each with the descriptor to which it is copied."""
        one, two = os.fstat(1), os.fstat(2)
        is_one_file = (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if is_one_file else subprocess.PIPE,
            env=first_environment(),
            umask=umask,
            process_group=0,
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
        files = {process.stdout: 1, process.stderr: 2}
        return process, {file.fileno(): to for file, to in files.items() if file}

    def _sample_gpus(self, placed: list[dict[str, Any]]) -> None:
        gpus = sum("gpu" in one for one in placed)
        if gpus:
            words = [str(self._attempt), str(gpus), str(os.getpid())]
            with (self._attempt / "gpu_sampler.log").open("wb") as log:
                subprocess.Popen(
                    [sys.executable, "-m", "runs.attempt.gpu_sampler", *words],
                    env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
                )  # fmt: skip

    def _follow(self, process: subprocess.Popen[bytes], pipes: dict[int, int]) -> None:
        """Copy the output and pass signals on until the script has ended.

        What it leaves behind may write for some seconds; then Slurm ends it with the job.
        """
        end_by = math.inf
        while pipes and time.monotonic() < end_by:
            has_ended = process.poll() is not None
            for pipe in select.select([*pipes], [], [], 0.2)[0]:
                piece = os.read(pipe, 2**16)
                _write(pipes[pipe], piece)
                self._log.keep(piece)
                if not piece:
                    del pipes[pipe]
            if has_ended:
                end_by = min(end_by, time.monotonic() + _DRAIN_S)
            while self._came:
                self._pass_on(self._came.pop(0), process)
            self._obey(process)
        process.wait()

    def _pass_on(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Send the script a signal that only this process got."""
        is_warning = number == signal.SIGUSR1 and self._config.resume is not None
        named = self._config.signal
        if number == signal.SIGTERM and named != "TERM":
            self._is_ended = True
        self._is_near_limit |= signal.Signals(number).name == f"SIG{named or 'USR1'}"
        if is_warning and named is None:
            self._end(process)
        elif not self._witness.has_seen(number):
            process.send_signal(number)  # Nothing, if it has ended.

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self._end_by is None:
            self._is_killed = True
            self._end_by = time.monotonic() + _PATIENCE_S
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def _obey(self, process: subprocess.Popen[bytes]) -> None:
        """End the script if a person asks for it by a file; kill it if it does not end."""
        if (self._attempt / "STOP").exists() or self._run.stop_file.exists():
            self._is_ended = True
            self._end(process)
        if self._end_by is not None and time.monotonic() > self._end_by:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _record_end(self, status: int) -> bool:
        """Record how the attempt ended; return whether the job is to be requeued."""
        can_resume = self._config.resume is not None
        # The script may end by a signal of Slurm that this process has not had yet.
        asks = (self._is_ended or status) and batch_job()
        why = ask_slurm("why_ended") if asks else None
        is_limit = why == "limit" or (self._is_near_limit and can_resume)
        if is_limit and can_resume and batch_job():
            return self._pause()
        if is_limit:
            self._fail("timeout", NOT_REQUEUED)
        elif why == "requeued":
            again = (
                "from its newest checkpoint" if can_resume else "from the beginning: no --resume"
            )
            self._event("paused", message=f"Slurm requeues the job; it begins again {again}")
        elif self._is_ended or (why == "cancelled" and status in (-signal.SIGTERM, 143)):
            self._event("stopped")
        elif status:
            output = read_end(self._log.path)
            shown = f"exit status {status}" if status > 0 else signal.Signals(-status).name
            raised = last_exception(output.splitlines()) or "no traceback in its output"
            cut = self._log.error
            reason = "disk" if cut and is_disk_full(cut) else reason_of_exit(status, output)
            self._fail(reason, f"{shown}: {raised}")
        else:
            self._event("done")
        return False

    def _pause(self) -> bool:
        """Record that the run goes on after a requeue, unless it gets nowhere."""
        files = [_newest(glob, None) for glob in globs(str(self._config.resume))]
        began = next(e["time"] for e in self._run.entries() if e["attempt"] == self._number)
        times = [file.stat().st_mtime for file in files if file]
        saved = min(times, default=0.0)
        if saved > began:
            self._event("saved")
        elif self._number > 1 and is_restarted():
            self._fail(
                "timeout", "it wrote no checkpoint from one start to its limit; raise --time"
            )
            return False
        lost = time.time() - max(saved, began)
        message = f"near the time limit; the work of {lost:.0f} s since the last checkpoint is lost"
        self._event("paused", message=message, killed=self._is_killed)
        return True

    def _fail(self, reason: str, message: str) -> None:
        self._event("failed", reason=reason, message=message)

    def _event(self, event: str, **fields: Any) -> None:
        self._run.record_event(self._number, event, **fields)


class _Witness:
    """A process that a signal to all processes of a job ends.

    Some plugins of Slurm send TERM to every process of a job, others to the batch script alone.
    In the first case the script has got it already, and a second one would run its trap twice.
    """

    def __init__(self) -> None:
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        bound = partial(end_with_parent, os.getpid())
        return subprocess.Popen(
            ["/bin/sleep", "infinity"], process_group=0, preexec_fn=bound,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def has_seen(self, number: int) -> bool:
        """Return whether the signal ended this process, too; then begin another one."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            ended_by = -self._process.wait(timeout=0.1)
            self._process = self._begin()
            return ended_by == number
        return False


class _Output:
    """`output.log` of an attempt, and `arrivals.txt`: its length after each piece, and the time."""

    def __init__(self, attempt: Path) -> None:
        self.path = attempt / "output.log"
        self.error: OSError | None = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        paths = (self.path, attempt / "arrivals.txt")
        self._files = [os.open(path, flags, 0o666) for path in paths]

    def keep(self, piece: bytes) -> None:
        """Append a piece of output with its time, unless an earlier one could not be written."""
        log, arrivals = self._files
        try:
            if piece and self.error is None:
                os.write(log, piece)
                size = os.lseek(log, 0, os.SEEK_CUR)
                os.write(arrivals, f"{size} {time.time():.3f}\n".encode())
        except OSError as error:
            self.error = error


NOT_REQUEUED = (
    "the time limit; not requeued, since nothing says how the script resumes: submit it with a "
    "longer --time, or with --resume='--FLAG {newest:FOLDER/CHECKPOINT-*.pt}'"
)


def globs(flags: str) -> list[str]:
    """Return the patterns of the files that the flags of a resume name: `{newest:PATTERN}`."""
    return [found for word in shlex.split(flags) for found in _NEWEST.findall(word)]


def _newest(pattern: str, killed: float | None) -> Path | None:
    """Return the newest match in the working directory; None without one.

    A file that was being written when its program was `killed` is passed over for an older one.
    """
    root = Path("/") if pattern.startswith("/") else Path()
    found = sorted(root.glob(pattern.lstrip("/")), key=lambda file: file.stat().st_mtime)
    if killed is not None and len(found) > 1 and found[-1].stat().st_mtime > killed - _CUT_S:
        return found[-2]
    return found[-1] if found else None


def _write(descriptor: int, piece: bytes) -> None:
    """Write all of a piece; on a full disk the script goes on."""
    while piece:
        try:
            piece = piece[os.write(descriptor, piece) :]
        except OSError:
            return
