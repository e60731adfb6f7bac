"""Real runs for tests: through the job body, or under torchrun with a number of ranks."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runs.attempt.open import open_attempt
from runs.folder import RunFolder, find_runs
from runs.records import read_records, valid
from tests.torchrun_pool import RankPool

DIGITS = Path("configs/pretrain/digits.yaml")
# A network and samples so small that a run takes seconds.
TINY = (
    "model.width=32", "model.depth=1", "model.heads=2", "train.global_batch=16",
    "sample.per_class=1", "sample.steps=2", "log.tensorboard=false",
)  # fmt: skip


def clean_environment(**changes: str) -> dict[str, str]:
    """This environment without the variables of a job, with the virtualenv of the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SBATCH_", "PYTEST_")) and name != "ENVIRONMENT"
    }
    # Tests run in parallel: threads that wait by spinning would slow the others down.
    fixed = {"VENV": sys.prefix, "SITE": "local", "OMP_WAIT_POLICY": "passive"}
    return kept | fixed | changes


def finished(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is text. `options` are those of subprocess.run."""
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )


def body(
    *arguments: str | Path, logs: Path, check: bool = True, job: str = "pretrain", **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run `bash jobs/JOB.sbatch ARGUMENTS` to its end, without Slurm."""
    environment = clean_environment(LOGS=str(logs), **changes)
    done = finished("bash", f"jobs/{job}.sbatch", *arguments, env=environment, timeout=1500)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def newest_run(logs: Path) -> RunFolder:
    """The newest run."""
    return max(find_runs(logs), key=lambda run: run.config_file.stat().st_mtime_ns)


def opened(
    source: Path, overrides: Sequence[str], *, kind: str | None = None, gpus: int | None = None
) -> RunFolder:
    """A new run of a config, or one to resume, with an attempt that has not run yet."""
    attempt = open_attempt(source, list(overrides), kind=kind, gpus=gpus)
    assert attempt is not None
    return RunFolder(attempt.parent.parent)


# The pools of this process by their number of ranks, the one used last at the end.
_POOLS: dict[int, RankPool] = {}
# Each rank holds half a gigabyte.
_MOST_POOLS = 2


def torchrun(run: RunFolder, *, ranks: int, engine: str = "train") -> None:
    """Carry out one attempt at a run with `ranks` ranks; raise AssertionError if it fails."""
    environment = clean_environment()
    pool = _POOLS.pop(ranks, None)
    if pool is None or not pool.is_alive:
        while len(_POOLS) >= _MOST_POOLS:
            _POOLS.pop(next(iter(_POOLS))).stop()
        pool = RankPool(ranks, environment=environment)
    _POOLS[ranks] = pool
    pool.run(run.path, engine=engine, environment=environment)


def two_ranks(*command: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Start a command as two ranks of a torchrun of its own, from outside of the pools."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = clean_environment(OMP_NUM_THREADS="1", PYTHONPATH=str(Path.cwd()))
    return finished(*launcher, "--nproc-per-node=2", *command, env=environment, timeout=timeout_s)


def trained(overrides: Sequence[str], *, ranks: int = 1) -> RunFolder:
    """Train a new run on digits to its end."""
    run = opened(DIGITS, overrides)
    torchrun(run, ranks=ranks)
    return run


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Let an attempt run here, and afterwards give back its signals and close its logs."""
    # Imported here because not every test of real runs needs torch.
    import torch

    from train.engine.metrics import log

    signals = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
    handlers = {number: signal.getsignal(number) for number in signals}
    # Tests run in parallel: threads that spin while they wait would slow the others down.
    torch.set_num_threads(1)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for log_handler in log.handlers:
            log_handler.close()
        log.handlers = []


def continued(run: RunFolder, *overrides: str, ranks: int = 1) -> None:
    """Carry out one more attempt at the run, to its end."""
    torchrun(opened(run.path, overrides), ranks=ranks)


def resumed(run: RunFolder, *, step: int, ranks: int) -> RunFolder:
    """Copy `run` with only its checkpoint of `step`, and train the copy to the end."""
    copy = RunFolder(run.path.with_name(f"{run.name}-from-{step}-on-{ranks}"))
    shutil.copytree(run.path, copy.path)
    for checkpoint in copy.checkpoints.glob("step-*"):
        if checkpoint.name != f"step-{step:09d}":
            shutil.rmtree(checkpoint)
    copy.metrics_file.unlink()
    continued(copy, ranks=ranks)
    return copy


def losses(run: RunFolder) -> dict[int, float]:
    """The loss of every step that is recorded."""
    records = valid(record for _, record in read_records(run.metrics_file))
    return {record["step"]: record["loss"] for record in records if "loss" in record}


def events(run: RunFolder) -> list[str]:
    """The events of a run, in order."""
    return [record["event"] for record in run.records() if "event" in record]


def processes(run: RunFolder, word: str) -> list[int]:
    """The processes of this run whose command line contains `word`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(run.path).encode() in command and any(word.encode() in part for part in command):
            found.append(int(entry.name))
    return sorted(found)


def rank_processes(run: RunFolder) -> list[int]:
    """The processes of the ranks of this run, without the torchrun that started them."""
    return sorted({*processes(run, "train")} - {*processes(run, "torchrun")})


def files_with(word: str, folder: Path) -> list[Path]:
    """The files below a folder that contain a word in their bytes or name."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if word in path.name or (path.is_file() and word.encode() in path.read_bytes())
    ]
