"""`jobs/gns.sbatch` without Slurm, and the experiments of study C on digits."""

from pathlib import Path
from typing import Any

import pytest

from configs.grid.study_file import load_grid
from configs.load import merge, to_tree
from configs.yaml12 import dump_yaml
from runs.folder import RunFolder
from tests.real_runs import DIGITS, TINY, body, events, newest_run, opened
from train.engine.attempt import run_attempt
from train.gradient_noise import offline
from train.pretrain import run as pretrain

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def run() -> RunFolder:
    """Return a run on digits with two checkpoints."""
    found = opened(DIGITS, [*TINY, "train.steps=4", "checkpoint.every=2"])
    assert run_attempt(found, pretrain.carry_out, number=1) == 0
    return found


def samples_of(run: RunFolder) -> list[dict[str, Any]]:
    return [record["gns_sample"] for record in run.records() if "gns_sample" in record]


def test_a_job_leaves_a_record_per_sample_with_its_runtime(run: RunFolder, tmp_path: Path) -> None:
    body(run.path, "bins=2", "samples=3", "batch=4", "steps=[4]", logs=tmp_path, job="gns")
    found = newest_run(tmp_path)
    assert found.config().kind == "gns"
    assert events(found)[-1] == "done"
    samples = samples_of(found)
    assert [sample.get("bin") for sample in samples] == [None, None, None, 0, 0, 0, 1, 1, 1]
    assert all(sample["seconds"] > 0 for sample in samples)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_study_c_runs_on_digits(number: int, run: RunFolder, tmp_path: Path) -> None:
    """Run the first and last cell of each experiment, with few samples of two checkpoints."""
    grid = load_grid(Path(f"configs/studies/c-{number}-small.yaml"), [f"run={run.path}"])
    for place, cell in enumerate((grid.cells[0], grid.cells[-1])):
        tree = merge(to_tree(cell.config), {"samples": 2, "batch": 2, "steps": [2, 4]})
        file = tmp_path / f"cell-{place}.yaml"
        file.write_text(dump_yaml(tree))
        found = opened(file, [], kind="gns")
        assert run_attempt(found, offline.carry_out, number=1) == 0
        samples = samples_of(found)
        groups = 11 if cell.config.bins else 1
        assert len(samples) == 2 * 2 * groups
        assert {sample["checkpoint"] for sample in samples} == {2, 4}
