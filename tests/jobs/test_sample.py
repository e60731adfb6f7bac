"""`jobs/sample.sbatch` without Slurm; a kill half-way is tested with encoding, alike in parts."""

from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import (
    TINY,
    body,
    newest_run,
    trained,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a run on digits."""
    logs = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGS", str(logs))
        return trained(logs, [*TINY, "train.steps=2"])


def test_a_run_without_a_checkpoint_fails_for_its_config(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "untrained").mkdir()
    (tmp_path / "untrained/config.yaml").write_bytes(run.config_file.read_bytes())
    done = body(tmp_path / "untrained", logs=tmp_path / "logs", job="sample", check=False)
    assert done.returncode == 1
    last = list(newest_run(tmp_path / "logs").records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "config")
    assert "no checkpoint yet; train the run first" in last["message"]
