"""A site is the one that is asked for; a cluster without a site file is told how to get one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from launch.__main__ import main
from runs.folder import ROOT

DIGITS = str(ROOT / "configs/pretrain/digits.yaml")


def test_a_cluster_without_a_site_file_is_told_how_to_get_one(
    command: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command("sbatch", "exit 1")
    command("sinfo", "exit 1")
    main(["plan", DIGITS, "--script"])
    assert "no site file describes this cluster: ditbench doctor writes" in capsys.readouterr().err


@pytest.mark.parametrize("before", ["", "local"])
def test_the_site_that_is_asked_for_is_taken_even_if_another_was_activated(
    before: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACTIVATED", str(ROOT))
    monkeypatch.setenv("ACTIVATED_SITE", before)
    assert main(["plan", DIGITS, "--site", "generic", "--script"]) == 0
    assert "SITE=generic" in capsys.readouterr().out
