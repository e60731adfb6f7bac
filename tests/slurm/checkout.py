"""A checkout of its own on a real Slurm, to launch from, to edit and to break."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runs.folder import ROOT, RunFolder
from tests.slurm.cluster import Cluster

# Made at run time, because a run keeps its code, which includes the tests.
CANARY = secrets.token_hex(16)


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A separate repository to launch from, and a folder of runs."""

    root: Path
    logs: Path
    cluster: Cluster

    @property
    def environment(self) -> dict[str, str]:
        return {
            "VENV": sys.prefix,
            "LOGS": str(self.logs),
            "SITE": "local",
            "PYTHONPATH": str(self.root),
            "WANDB_API_KEY": CANARY,
        }

    def launch(
        self, *arguments: str | Path, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(
            *(sys.executable, "-m", "launch", *arguments),
            cwd=self.root, env=self.environment | dict(env or {}), check=check, timeout=300,
        )  # fmt: skip

    def submit(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> tuple[RunFolder, str]:
        """Submit; return the run and the job's id."""
        lines = self.launch("submit", *arguments, env=env).stdout.splitlines()
        run, job = (line.partition(": ")[2] for line in lines)
        return RunFolder(Path(run)), job

    def status(self, run: RunFolder, *, env: Mapping[str, str] | None = None) -> dict[str, object]:
        (row,) = json.loads(self.launch("status", run.path, "--json", env=env).stdout)
        return row


def make_checkout(cluster: Cluster, root: Path, *, logs: Path) -> Checkout:
    copy_tree(root)
    return Checkout(root=root, logs=logs, cluster=cluster)


def copy_tree(root: Path) -> None:
    """Make `root` a repository with this tree as it is, without site files of one's own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
         "--exclude=/env/sites/*"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    for name in os.fsdecode(listed).split("\0")[:-1]:
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "All")):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
