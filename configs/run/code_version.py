"""Which code runs: the commit, and where the tree differs from it, the difference."""

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Version:
    """A commit, and the patch that makes the tree of it; `dirty` where files differ or are new."""

    commit: str
    dirty: bool
    patch: str = ""


def version(root: Path) -> Version | None:
    """The version of a checkout, or of a snapshot taken of one; None where git knows nothing."""
    if (root / "version.json").is_file():
        facts = json.loads((root / "version.json").read_text(encoding="utf-8"))
        return Version(**facts)
    commit = git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    patch = git(root, "diff", "--binary", "HEAD") or ""
    new = git(root, "ls-files", "--others", "--exclude-standard")
    return Version(commit=commit.strip(), dirty=bool(patch or new), patch=patch)


def to_json(of: Version) -> str:
    """The text of `version.json`, by which a snapshot knows what it is a snapshot of."""
    return json.dumps(asdict(of), indent=1) + "\n"


def git(root: Path, *arguments: str) -> str | None:
    """What a git command prints; None where it fails or there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env=without_git_variables(),
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode(errors="backslashreplace")


def without_git_variables() -> dict[str, str]:
    """The environment without what points git at another repository, as in a hook."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("GIT_CONFIG") or not name.startswith("GIT_")
    }
