"""Run the program of a `command` run: its output, its signals, and how it ended."""

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from configs.disk import read_end
from configs.load import expect
from configs.schema import Command
from runs.attempt.output_log import OutputLog, last_exception
from runs.attempt.parent import end_with_parent
from runs.folder import RunFolder
from runs.slurm_env import node_name
from runs.state.fold import end_of_program
from runs.state.reasons import is_disk_full
from runs.trust import check_own

# The folder of the snapshot that the launcher took of the program.
TREE = "PROGRAM_TREE"
# Variables of ditbench itself, which would change what the program imports or how fast it is.
_OURS = ("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "OMP_NUM_THREADS", TREE)
# How long the output of processes that the program has left behind is kept.
_DRAIN_S = 5.0


def program_tree(config: Command) -> Path:
    """Return the folder that the program runs in: its snapshot, or its own folder."""
    return Path(os.environ.get(TREE) or str(config.folder))


def run_program(attempt: Path) -> int:
    """Run one attempt and return the exit status of the program.

    Output goes to `output.log`; for each piece of it, `arrivals.txt` has the length of the log
    after it and the time. Record `started`, `saved` if the program wrote into `RUN/output`, and
    the end. A program that was killed leaves the end to `close_attempt`. What it left running in
    its process group is killed. On a full disk the log ends, the program does not.
    """
    run, number = RunFolder(attempt.parent.parent), int(attempt.name)
    check_own(run.path)
    config = expect(run.config(number), Command, source=run.path)
    output = run.path / "output"
    output.mkdir(exist_ok=True)
    words = _words(config, output)
    placed = placement()
    run.note(number, placement=placed, ranks=len(placed))
    began = time.time()
    run.record_event(number, "started")
    try:
        program = _Program(run, attempt, config)
        process = program.start(words)
    except OSError as error:
        reason = "disk" if is_disk_full(error) else "config"
        why = f"{words[0]}: cannot be started: {error.strerror}"
        run.record_event(number, "failed", reason=reason, message=why)
        return 127
    status = program.follow(process)
    if any(file.stat().st_mtime > began for file in output.rglob("*") if file.is_file()):
        run.record_event(number, "saved")
    if status != -signal.SIGKILL:
        event, fields = program.end(status)
        run.record_event(number, event, **fields)
    return status if status >= 0 else 128 - status


def _words(config: Command, output: Path) -> list[str]:
    """Return the words to execute: those of `resume` once every file that it names exists."""
    words = config.words(config.run, str(output))
    if config.resume is not None:
        again = config.words(config.resume, str(output))
        named = [word[word.index(f"{output}/") :] for word in again if f"{output}/" in word]
        if all(map(os.path.exists, named)) and any(output.iterdir()):
            words = again
    if config.setup:
        # The words are arguments of bash, which does not parse them.
        words = ["bash", "-c", "\n".join(["set -e", *config.setup, 'exec "$@"']), "bash", *words]
    return words


class _Program:
    """The process, and the requests of this attempt that it was told of."""

    def __init__(self, run: RunFolder, attempt: Path, config: Command) -> None:
        self._run, self._attempt, self._config = run, attempt, config
        self._log = OutputLog(attempt)
        self._signals: set[int] = set()
        self._paused = self._stopped = False
        self._asked = -math.inf

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        """Execute the words in a process group of their own; raise `OSError` if that fails."""
        # A signal that is handled here has its default action again in the program.
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, lambda number, _: self._signals.add(number))
        return subprocess.Popen(
            words,
            cwd=program_tree(self._config),
            env={k: v for k, v in os.environ.items() if k not in _OURS} | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=partial(end_with_parent, os.getpid()),
        )

    def follow(self, process: subprocess.Popen[bytes]) -> int:
        """Keep its output, pass requests on, and return its status, negative for a signal."""
        assert process.stdout is not None
        pipes, end = [process.stdout.fileno()], math.inf
        while (pipes or process.poll() is None) and time.monotonic() < end:
            is_silent = not select.select(pipes, [], [], 0.5)[0]
            if not is_silent:
                piece = os.read(pipes[0], 2**16)
                pipes = pipes if piece else []
                self._log.keep(piece)
            if process.poll() is None:
                self._pass_on(process)
            elif is_silent:
                break
            else:
                end = min(end, time.monotonic() + _DRAIN_S)
        # Processes that it left behind would hold its GPU.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        return process.wait()

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        """Send the program the signal of a request, once."""
        if time.monotonic() - self._asked < 0.5:
            return
        self._asked = time.monotonic()
        number = self._config.signal or ("TERM" if self._config.resume else None)
        is_near = signal.SIGUSR1 in self._signals or (self._attempt / "PAUSE").exists()
        stops = (self._attempt / "STOP", self._run.stop_file)
        is_to_stop = signal.SIGTERM in self._signals or any(map(Path.exists, stops))
        if signal.SIGQUIT in self._signals:
            os.killpg(process.pid, signal.SIGKILL)
        elif is_to_stop and not self._stopped:
            self._stopped = True
            process.terminate()
        elif not self._paused and is_near and number:
            self._paused = True
            self._log.keep(f"the time limit is near: {number} sent to the program\n".encode())
            process.send_signal(signal.Signals[f"SIG{number}"])

    def end(self, status: int) -> tuple[str, dict[str, Any]]:
        """Return the event that ends the attempt, and its fields."""
        output = read_end(self._log.path)
        event, reason = end_of_program(
            status,
            asked_to_pause=self._paused,
            asked_to_stop=self._stopped,
            requeue_code=self._config.requeue_code,
            output=output,
        )
        if reason is None:
            return event, {}
        if self._log.error is not None and is_disk_full(self._log.error):
            shown = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
            return event, {"reason": "disk", "message": f"{shown}: {self._log.error}"}
        return event, {"reason": reason, "message": self._message(status, output)}

    def _message(self, status: int, output: str) -> str:
        """Return the message of a failure: the last exception in the output, if any."""
        if self._paused and self._stopped:
            return "the program had not ended at the time limit"
        shown = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"{shown}: {last_exception(output)}"


def placement() -> list[dict[str, Any]]:
    """Return an entry per GPU of this node, or one for its processors."""
    place = {"node": node_name(), "threads": len(os.sched_getaffinity(0))}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    gpus: list[dict[str, Any]] = []
    # A driver without GPUs prints a sentence instead of rows.
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        found = subprocess.run(
            query + ([f"--id={visible}"] if visible else []),
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout.splitlines()  # fmt: skip
        pairs = [line.rpartition(", ") for line in found if visible != ""]
        gpus = [
            {"gpu": name, "gpu_memory_gb": round(float(mib) * 2**20 / 1e9, 3)}
            for name, _, mib in pairs
        ]
    return [{"rank": rank} | place | gpu for rank, gpu in enumerate(gpus)] or [{"rank": 0} | place]
