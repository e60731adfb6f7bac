"""The linter needs no package, so that any Python checks a script."""

import sys
from pathlib import Path

from runs.folder import ROOT
from tests.real_runs import finished


def test_any_python_lints_a_script(tmp_path: Path) -> None:
    script = tmp_path / "my.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --gpus-per-node=2\npython train.py\n")
    linted, refused = (
        # -S hides the installed packages.
        finished(sys.executable, "-S", "-m", "launch", *words, cwd=ROOT)
        for words in (["check", script], ["status"])
    )
    assert linted.returncode == 1, linted.stderr
    assert f"{script}:" in linted.stdout
    assert refused.returncode == 2
    assert refused.stderr == "No module named 'pydantic'; fix: source env/activate.sh\n"
