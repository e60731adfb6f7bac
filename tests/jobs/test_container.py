"""A run of a site with a container: ranks inside, everything else outside."""

import os
import sys
from pathlib import Path

import pytest

from tests.real_runs import DIGITS, TINY, body, events, finished, newest_run

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
    body(
        DIGITS, *TINY, "train.steps=20", logs=logs, CONTAINER=str(image),
        XDG_CACHE_HOME=str(tmp_path / "ca che"), PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    )  # fmt: skip
    run = newest_run(logs)
    assert events(run)[-1] == "done"
    inside = (run.attempt(1) / "output.log").read_text().splitlines()[0]
    names = sorted(["ca che", 'l,o"gs', run.name, Path.cwd().name])
    assert inside == f"inside {image.name} with {' '.join(names)}"


def test_the_paths_of_a_config_are_there_too(tmp_path: Path) -> None:
    (tmp_path / "da ta").mkdir()
    words = ["data.source=folder", f"data.path={tmp_path / 'da ta'}", "train.branch_from=/no/run"]
    done = finished(sys.executable, "-m", "runs", "show", DIGITS, *words, "--paths")
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
    done = body(DIGITS, logs=tmp_path, check=False, **variables)
    assert (done.returncode, done.stderr.startswith(message)) == (2, True)
    assert list(tmp_path.iterdir()) == []
