"""Real runs for tests: through the job body, or under torchrun with a number of ranks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.attempt.open import open_attempt
from configs.run.folder import RunFolder, find_runs
from configs.run.records import read_records, valid
from tests.torchrun_pool import Crew

DIGITS = Path("configs/pretrain/digits.yaml")
# A network and samples so small that a run is over in seconds.
TINY = (
    "model.width=32", "model.depth=1", "model.heads=2", "train.global_batch=16",
    "sample.per_class=1", "sample.steps=2", "log.tensorboard=false",
)  # fmt: skip


def clean_environment(**changes: str) -> dict[str, str]:
    """This environment less what belongs to a job, with the virtualenv of the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SBATCH_", "PYTEST_")) and name != "ENVIRONMENT"
    }
    # Tests run beside one another: threads that wait by spinning would keep the others waiting.
    fixed = {"VENV": sys.prefix, "SITE": "local", "OMP_WAIT_POLICY": "passive"}
    return kept | fixed | changes


def body(
    *arguments: str | Path, logs: Path, check: bool = True, job: str = "pretrain", **changes: str
) -> subprocess.CompletedProcess[str]:
    """`bash jobs/JOB.sbatch ARGUMENTS` to its end, without Slurm."""
    done = subprocess.run(
        ["bash", f"jobs/{job}.sbatch", *map(str, arguments)],
        env=clean_environment(LOGS=str(logs), **changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def newest_run(logs: Path) -> RunFolder:
    """The run that was made last."""
    return max(find_runs(logs), key=lambda run: run.config_file.stat().st_mtime_ns)


def opened(
    source: Path, overrides: Sequence[str], *, kind: str | None = None, gpus: int | None = None
) -> RunFolder:
    """A run of a config, or one to resume, with an attempt to be carried out."""
    attempt = open_attempt(source, list(overrides), kind=kind, gpus=gpus)
    assert attempt is not None
    return RunFolder(attempt.parent.parent)


# Of this process, by their number of ranks, the one that was asked last at the end.
_CREWS: dict[int, Crew] = {}
# Each rank keeps half a gigabyte.
_MOST_CREWS = 2


def torchrun(run: RunFolder, *, ranks: int, engine: str = "train") -> None:
    """One attempt at a run by `ranks` ranks of one thread each; AssertionError if it fails."""
    environment = clean_environment()
    crew = _CREWS.pop(ranks, None)
    if crew is None or not crew.is_there:
        while len(_CREWS) >= _MOST_CREWS:
            _CREWS.pop(next(iter(_CREWS))).dismiss()
        crew = Crew(ranks, environment=environment)
    _CREWS[ranks] = crew
    crew.carry_out(run.path, engine=engine, environment=environment)


def trained(logs: Path, overrides: Sequence[str], *, ranks: int = 1) -> RunFolder:
    """A run on digits, trained to its end."""
    run = opened(DIGITS, overrides)
    torchrun(run, ranks=ranks)
    return run


def carried_on(run: RunFolder, *overrides: str, ranks: int = 1) -> None:
    """One more attempt at the run, to its end."""
    torchrun(opened(run.path, overrides), ranks=ranks)


def resumed(run: RunFolder, *, step: int, ranks: int, logs: Path) -> RunFolder:
    """A copy of `run` that holds only its checkpoint of `step`, trained on to the end."""
    copy = RunFolder(logs / f"{run.name}-from-{step}-on-{ranks}")
    shutil.copytree(run.path, copy.path)
    for checkpoint in copy.checkpoints.glob("step-*"):
        if checkpoint.name != f"step-{step:09d}":
            shutil.rmtree(checkpoint)
    copy.metrics_file.unlink()
    carried_on(copy, ranks=ranks)
    return copy


def losses(run: RunFolder) -> dict[int, float]:
    """The loss of every step that is recorded."""
    records = valid(record for _, record in read_records(run.metrics_file))
    return {record["step"]: record["loss"] for record in records if "loss" in record}


def events(run: RunFolder) -> list[str]:
    """The events of a run, in order."""
    return [record["event"] for record in run.records() if "event" in record]


def processes(run: RunFolder, word: str) -> list[int]:
    """Processes of this run whose command line holds `word`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(run.path).encode() in command and any(word.encode() in part for part in command):
            found.append(int(entry.name))
    return sorted(found)


def files_with(word: str, folder: Path) -> list[Path]:
    """The files below a folder that hold a word, in their bytes or their name."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if word in path.name or (path.is_file() and word.encode() in path.read_bytes())
    ]
