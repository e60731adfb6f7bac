"""Runs of one script that would overwrite each other's files are refused, or warned of."""

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("flags", "varied", "code", "words"),
    [
        ("--output_dir=out", [], 1, "give each its own folder: --vary --output_dir=out/{run}"),
        ("--output_dir=out", ["--vary", "--output_dir=out/{run}"], 0, ""),
        ("--output_dir out/$SLURM_JOB_ID", [], 0, ""),
        ("--outdir $OUT", ["--vary", "OUT={run}"], 0, ""),
        ("", [], 0, "files of one name overwrite each other"),
    ],
)
def test_each_run_needs_a_folder_of_its_own(
    launch, tmp_path: Path, flags: str, varied: list[str], code: int, words: str
) -> None:
    (tmp_path / "my.sbatch").write_text(f"#!/bin/bash\nOUT=out\npython train.py --lr 1 {flags}\n")
    both = ["--vary", "--lr=1,2", *varied]
    found, out, _ = launch("plan", tmp_path / "my.sbatch", *both)
    assert found == code
    assert words in out
    assert ("overwrite" in out) == ("overwrite" in words)
    one, out, _ = launch("plan", tmp_path / "my.sbatch")
    assert (one, "overwrite" in out) == (0, False)
