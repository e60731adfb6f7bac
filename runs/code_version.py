"""The version of the code: the commit, and the changes of a tree that differs from it."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runs.json_files import read_json


@dataclass(frozen=True, kw_only=True)
class Version:
    """A commit and the patch from it to the tree; `dirty` if files differ or are untracked."""

    commit: str
    dirty: bool
    patch: str = ""


def read_version(root: Path) -> Version | None:
    """Return the version of a checkout, or of a snapshot of one; None without git."""
    if (root / "version.json").is_file():
        return read_json(root / "version.json", Version, fix="submit again")
    commit = git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    patch = git(root, "diff", "--binary", "HEAD") or ""
    untracked = git(root, "ls-files", "--others", "--exclude-standard")
    return Version(commit=commit.strip(), dirty=bool(patch or untracked), patch=patch)


def git(root: Path, *arguments: str) -> str | None:
    """Return the output of a git command, or None if it fails or git is not installed."""
    try:
        return run_git(root, *arguments).decode(errors="backslashreplace")
    except (OSError, subprocess.CalledProcessError):
        return None


def run_git(root: Path, *arguments: str) -> bytes:
    """Return the output of a git command; raise as `subprocess.run` does if it fails.

    The variables that select another repository, as in a hook, are hidden from it.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("GIT_CONFIG") or not name.startswith("GIT_")
    }
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout
