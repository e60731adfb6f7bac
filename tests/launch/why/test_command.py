"""`launch why` lists attempts, groups the runs of a study, and prints nothing that acts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus.catalogue import one
from tests.corpus.planting import plant_study
from tests.launch.conftest import Launch


@pytest.fixture(autouse=True)
def _no_slurm(command: Callable[[str, str], Path]) -> None:
    """A Slurm that has forgotten every job."""
    for name in ("squeue", "sacct", "scontrol"):
        command(name, "exit 1")


def test_a_folder_that_is_not_a_run_is_refused(launch: Launch, tmp_path: Path) -> None:
    code, _, err = launch("why", tmp_path)
    assert code == 2
    assert "nor the job of one" in err


def test_a_study_tells_runs_that_failed_alike_once(site: Path, launch: Launch) -> None:
    runs = [one(f"c{i}", f"failed crash: KeyError: 'weights of rank {i}'") for i in range(6)]
    runs += [one(f"c{i}", "done 600") for i in (6, 7)]
    study = plant_study(runs, site / "grid-1")
    code, out, err = launch("why", study.path)
    assert code == 0
    assert "8 runs: 6 failed, 2 done" in err
    lines = out.splitlines()
    assert lines[0] == "6 ended alike: c0, c1, c2, c3, c4 and 1 more; the first:"
    assert out.count("KeyError") == 1
    assert lines[-1] == f"all of them again: ditbench rerun {study.path}"
    (group,) = json.loads(launch("why", study.path, "--json")[1])
    assert (len(group["runs"]), group["cause"]) == (6, "crash")
    code, _, err = launch("tail", study.path)
    assert code == 2
    assert err == f"{study.path}: not a run's folder; `ditbench status` lists them\n"
