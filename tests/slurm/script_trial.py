"""Batch scripts that are linted and then run on a real Slurm."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from launch.lint.lint import lint
from launch.lint.script import parse_script
from runs.folder import ROOT
from tests.slurm.cluster import Cluster, wait_until


def rules(text: str, *, version: str | None = None) -> set[str]:
    """Return the names of the rules that a script breaks on a version of Slurm, or on any."""
    script = parse_script(text, path=Path("my.sbatch"))
    return {one.rule.name for one in lint(script, version=version)}


def expect_rule(name: str, bad: str, good: str) -> None:
    """Assert that a rule finds the mistake in a script, and nothing in its fix."""
    assert name in rules(bad)
    assert name not in rules(good)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Run scripts on the cluster from one folder."""

    cluster: Cluster
    folder: Path

    @property
    def version(self) -> str:
        """The version of this Slurm."""
        return self.cluster.run("sinfo", "--version").stdout.split()[1]

    def warned(self, name: str, text: str) -> bool:
        """Return whether a rule warns of a script on this Slurm; without a version it must."""
        assert name in rules(text)
        return name in rules(text, version=self.version)

    def documented(self, script: str) -> str:
        """Return what the table in docs/slurm.md says of such a script on this version."""
        page = (ROOT / "docs" / "slurm.md").read_text()
        rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:2] == "| "]
        versions = next(row for row in rows if row[0] == "a script with")
        (row,) = [row for row in rows if row[0] == script]
        return dict(zip(versions, row, strict=True))[".".join(self.version.split(".")[:2])]

    def start(self, text: str, *flags: str) -> str:
        """Submit a script and return its job."""
        script = self.folder / "my.sbatch"
        script.write_text(f"#!/bin/bash\n{text}")
        return self.cluster.submit(
            "--output=%j.out", *flags, script, cwd=self.folder, env={"PATH": path()}
        )

    def output(self, job: str) -> str:
        """Return the job's output so far."""
        file = self.folder / f"{job}.out"
        return file.read_text() if file.exists() else ""

    def run(self, text: str, *flags: str) -> tuple[str, str]:
        """Run a script to its end and return the state and the output."""
        job = self.start(text, *flags)
        return self.cluster.wait(job), self.output(job)

    def wait_for(self, job: str, word: str) -> None:
        """Wait until the job has printed a word."""
        wait_until(lambda: word in self.output(job), what=f"{word} of job {job}")


def path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
