"""Commands that use a site say which one, and how to describe a cluster that has none."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.__main__ import main
from runs.folder import ROOT

LOCAL = "site: local (env/sites/local.sh)"
HINT = "; to describe this cluster, run: ditbench doctor"
DIGITS = str(ROOT / "configs/pretrain/digits.yaml")


@pytest.mark.parametrize("words", [["status"], ["why", "7"], ["cancel", "/no/where"]])
def test_a_cluster_without_a_site_file_is_told_how_to_get_one(
    words: list[str], command: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command("sbatch", "exit 1")
    command("sacct", "exit 1")
    command("squeue", "exit 1")
    main(words)
    assert capsys.readouterr().err.startswith(f"{LOCAL}{HINT}\n")


@pytest.mark.parametrize("before", ["", "local"])
def test_the_site_that_is_asked_for_is_named_even_if_another_was_activated(
    before: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACTIVATED", str(ROOT))
    monkeypatch.setenv("ACTIVATED_SITE", before)
    assert main(["plan", DIGITS, "--site", "generic", "--script"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("site: generic (env/sites/generic.sh)\n")
    assert "SITE=generic" in shown.out


def test_any_python_lints_a_script(tmp_path: Path) -> None:
    script = tmp_path / "my.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --gpus-per-node=2\npython train.py\n")
    linted, refused = (
        # -S hides the installed packages.
        subprocess.run(
            [sys.executable, "-S", "-m", "launch", *words], cwd=ROOT, capture_output=True,
            text=True, check=False,
        )
        for words in (["check", str(script)], ["status"])
    )  # fmt: skip
    assert linted.returncode == 1, linted.stderr
    assert f"{script}:" in linted.stdout
    assert refused.returncode == 2
    assert refused.stderr == "No module named 'pydantic'; fix: source env/activate.sh\n"
