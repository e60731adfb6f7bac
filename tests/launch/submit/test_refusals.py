"""Everything that would be refused is said at once."""

from pathlib import Path

import pytest

from runs.folder import find_runs
from tests.launch.conftest import DIGITS

pytestmark = pytest.mark.usefixtures("slurm")
MISSING = ("data.source=folder", "data.path=/nope", "data.channels=3")


@pytest.mark.parametrize("values", [(), ("seed=1,2",)])
def test_a_dry_run_shows_the_script_and_then_every_refusal(
    values: tuple[str, ...], launch, command, site: Path
) -> None:
    command("sbatch", "echo 'Requested node configuration is not available' >&2; exit 1")
    words = (*MISSING, *values, "resources.gpu=a400", "resources.hours=100")
    code, out, err = launch("plan", DIGITS, *words, "--script")
    assert (code, out.startswith("#!/bin/bash\n")) == (1, True)
    assert "/nope: no such folder" in err
    assert "partition gpu allows 48:00:00, not 100:00:00: lower resources.hours" in err
    code, _, err = launch("plan", DIGITS, *MISSING, *values, "resources.gpu=a400", "--script")
    assert (code, err.count("fail  ")) == (1, 2)
    assert "Requested node configuration" in err
    assert not site.exists()


def test_force_submits_what_is_refused_with_a_warning(launch, site: Path) -> None:
    assert launch("submit", DIGITS, *MISSING)[0] == 2
    code, _, err = launch("submit", DIGITS, *MISSING, "--force")
    assert (code, "warning: data.path /nope" in err) == (0, True)
    assert len(find_runs(site)) == 1


def test_values_on_the_command_line_say_how_many_runs_they_make(launch) -> None:
    _, _, err = launch("submit", DIGITS, "optimizer.lr=1e-4,3e-4", "repeats=2")
    assert "4 runs, at most 16 GPU-hours" in err
