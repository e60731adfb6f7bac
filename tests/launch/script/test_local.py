"""Runs of a batch script that vary are carried out one after another where there is no Slurm."""

import json
from pathlib import Path

import pytest

from tests.slurm.cluster import wait_until

SCRIPT = """#!/bin/bash
until [[ -e go ]]; do sleep 0.05; done
for step in {1..40}; do
  echo "step $step loss $(( 1000 - 10 * LR * step )).5"
done
echo "$LR" >>order
exit $((LR == 3))
"""


def test_a_varied_script_runs_here_run_by_run_and_is_compared(
    launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.sbatch").write_text(SCRIPT)
    code, out, _ = launch("submit", "my.sbatch", "--vary", "LR=1,2,3", "--local")
    assert code == 0
    study = out.splitlines()[0].removeprefix("study: ")
    assert out.count("process: ") == 1
    refused, _, why = launch("submit", study, "--local")
    assert refused
    assert "already runs it here" in why
    Path("go").touch()
    rows = _ended(launch, study)
    assert sorted(row["state"] for row in rows) == ["done", "done", "failed"]
    assert sorted(Path("order").read_text().split()) == ["1", "2", "3"]
    again: list[str] = []
    # The process that ran them ends a moment after its last run.
    wait_until(lambda: again.append(launch("submit", study, "--local")[1]) or again[-1])
    assert again[-1].count("process: ") == 1
    _ended(launch, study)
    assert Path("order").read_text().split()[3:] == ["3"]


def _ended(launch, study: str) -> list[dict[str, str]]:
    def rows() -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(launch("status", study, "--json")[1])
        return found

    wait_until(lambda: {row["state"] for row in rows()} <= {"done", "failed"})
    return rows()
