"""A run of a site with a container: ranks inside, everything else outside."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_runs import DIGITS, TINY, clean_environment, events, newest_run

# Apptainer's part in it: mounts as CSV, an image, and a command without the host's PATH.
STAND_IN = """#!/usr/bin/env python3
import csv, os, sys
exec_, nv, *words = sys.argv[1:]
assert (exec_, nv) == ("exec", "--nv"), words
mounted = []
while words[0] == "--mount":
    [fields] = csv.reader([words[1]])
    assert fields[0] == "type=bind", fields
    source, destination = (field.partition("=")[2] for field in fields[1:])
    assert source == destination and os.path.exists(source), fields
    mounted.append(source)
    del words[:2]
image, *command = words
names = sorted(map(os.path.basename, mounted))
print("inside", os.path.basename(image), "with", *names, flush=True)
os.execvp(command[0], command)
"""


def test_ranks_run_in_the_image_with_the_code_the_run_and_the_cache(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apptainer").write_text(STAND_IN)
    (tmp_path / "bin" / "apptainer").chmod(0o755)
    image, logs = tmp_path / "my 'image'.sif", tmp_path / 'l,o"gs'
    image.touch()
    environment = clean_environment(
        LOGS=str(logs), CONTAINER=str(image), XDG_CACHE_HOME=str(tmp_path / "ca che")
    )
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "jobs/pretrain.sbatch", str(DIGITS), *TINY, "train.steps=20"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = newest_run(logs)
    assert events(run)[-1] == "done"
    inside = (run.attempt(1) / "output.log").read_text().splitlines()[0]
    names = sorted(["ca che", 'l,o"gs', run.name, Path.cwd().name])
    assert inside == f"inside {image.name} with {' '.join(names)}"


def test_the_paths_of_a_config_are_there_too(tmp_path: Path) -> None:
    (tmp_path / "da ta").mkdir()
    words = ["data.source=folder", f"data.path={tmp_path / 'da ta'}", "train.branch_from=/no/run"]
    done = subprocess.run(
        [sys.executable, "-m", "runs", "show", str(DIGITS), *words, "--paths"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{tmp_path / 'da ta'}\0", "")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CONTAINER": "/no.sif"}, "CONTAINER=/no.sif: no such image; "),
        ({"CONTAINER": "/", "LOCAL_NODES": "2"}, "CONTAINER: without Slurm only one node can "),
    ],
)
def test_a_container_that_cannot_be_used_ends_before_a_run(
    variables: dict[str, str], message: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["bash", "jobs/pretrain.sbatch", str(DIGITS)],
        env=clean_environment(LOGS=str(tmp_path), **variables),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.startswith(message)) == (2, True)
    assert list(tmp_path.iterdir()) == []
