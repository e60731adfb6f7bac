"""Batch scripts that a rule judges and that a real Slurm then runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.lint.lint import lint
from launch.lint.script import parse_script
from tests.slurm.cluster import Cluster, wait_until


def rules(text: str) -> set[str]:
    """The names of the rules that a script breaks."""
    return {one.rule.name for one in lint(parse_script(text, path=Path("my.sbatch")))}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Scripts that are judged by a rule and then run."""

    cluster: Cluster
    folder: Path

    def start(self, text: str, *flags: str) -> str:
        """Submit a script; its job."""
        script = self.folder / "my.sbatch"
        script.write_text(f"#!/bin/bash\n{text}")
        return self.cluster.submit(
            "--output=%j.out", *flags, script, cwd=self.folder, env={"PATH": path()}
        )

    def said(self, job: str) -> str:
        """The job's output so far."""
        file = self.folder / f"{job}.out"
        return file.read_text() if file.exists() else ""

    def ended(self, text: str, *flags: str) -> tuple[str, str]:
        """State and output of a script that was run to its end."""
        job = self.start(text, *flags)
        return self.cluster.wait(job), self.said(job)

    def hears(self, job: str, word: str, *, timeout: float = 20) -> None:
        """Wait until the job has said something."""
        wait_until(lambda: word in self.said(job), timeout=timeout, what=f"{word} of job {job}")


def path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def trial(cluster: Cluster, tmp_path: Path) -> Trial:
    return Trial(cluster=cluster, folder=tmp_path)
